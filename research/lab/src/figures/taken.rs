//! The results of runs, in one file for each measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Machine;

/// A measurement with its runs, or with the reason why it was not made.
#[derive(Serialize, Deserialize)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// Whether sizes were small. Then the figures are worth nothing.
    pub quick: bool,
    /// The commit.
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
    /// The arguments.
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

    /// The output of the runs with this label.
    pub fn of(&self, label: &str) -> Vec<&Value> {
        self.runs.iter().filter(|run| run.label == label).map(|run| &run.result).collect()
    }

    /// The labels, each once, in order.
    pub fn labels(&self) -> Vec<&str> {
        let mut labels: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !labels.contains(&run.label.as_str()) {
                labels.push(&run.label);
            }
        }
        labels
    }
}
