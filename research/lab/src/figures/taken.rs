//! The results of runs, in one file for each measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::list::Table;
use super::machine::Machine;
use crate::report::Row;

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

    /// The rows of a table.
    pub fn rows(&self, table: &Table) -> Vec<Row> {
        self.runs.iter().flat_map(|run| table.rows_of(&run.label, &run.result)).collect()
    }
}
