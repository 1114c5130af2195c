//! The results of runs, in one file for each measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::list::Measurement;
use super::machine::Machine;
use crate::report::{Row, drawn};

/// A measurement with its runs, or with the reason why it was not made.
#[derive(Serialize, Deserialize)]
pub struct Taken {
    pub name: String,
    /// Whether sizes were small. Then the figures are worth nothing.
    pub quick: bool,
    pub commit: String,
    /// The time in UTC.
    pub date: String,
    /// The unmet need, if any.
    pub missing: Option<String>,
    /// Its runs, in order.
    pub runs: Vec<Run>,
}

/// One run of this program.
#[derive(Serialize, Deserialize)]
pub struct Run {
    /// The subject of the run. Runs with the same label are rounds of one measurement.
    pub label: String,
    pub line: String,
    /// Its time in seconds.
    pub seconds: f64,
    /// Its output.
    pub result: Value,
}

impl Taken {
    /// A measurement without runs yet.
    pub fn new(name: &str, quick: bool, machine: &Machine) -> Taken {
        Taken {
            name: name.to_owned(),
            quick,
            commit: machine.commit.clone(),
            date: crate::programs::now(),
            missing: None,
            runs: Vec::new(),
        }
    }

    /// Writes the measurement to `NAME.json`.
    pub fn write(&self, out: &Path) -> Result<()> {
        let path = out.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The tables of the results, in Markdown.
    pub fn describe(&self, measurement: &Measurement) -> String {
        if let Some(missing) = &self.missing {
            return format!("Not measured: there was no {missing}.\n");
        }
        let first = self.runs.first().map_or("", |run| run.line.trim_end());
        let seconds: f64 = self.runs.iter().map(|run| run.seconds).sum();
        let more = match self.runs.len() {
            1 => String::new(),
            runs => format!(", the first of {runs} runs"),
        };
        let date = self.date.replace('T', " ");
        let date = date.trim_end_matches('Z');
        let mut text = format!("`{first}`{more}; {date} UTC, {seconds:.0} s.\n");
        for table in &measurement.tables {
            let rows = self.runs.iter().flat_map(|run| table.rows_of(&run.label, &run.result));
            let rows: Vec<Row> = rows.collect();
            text += &format!("\n{}\n\n{}", table.about, drawn(&rows, true));
        }
        text
    }
}
