//! What runs have shown, in a file of each measurement.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Machine;

/// A measurement that was made, or the reason why not.
#[derive(Serialize, Deserialize)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// At small sizes, so that the figures are worth nothing.
    pub quick: bool,
    /// The commit.
    pub commit: String,
    /// When, in UTC.
    pub date: String,
    /// What it would have needed.
    pub missing: Option<String>,
    /// Its runs, in the order they were made.
    pub runs: Vec<Run>,
}

/// One run of this program.
#[derive(Serialize, Deserialize)]
pub struct Run {
    /// What it was about. Runs with the same label are rounds of the same.
    pub label: String,
    /// The arguments.
    pub line: String,
    /// How long it took.
    pub seconds: f64,
    /// What it printed.
    pub result: Value,
}

impl Taken {
    /// Without runs.
    pub fn new(name: &str, quick: bool, machine: &Machine) -> Taken {
        Taken {
            name: name.to_owned(),
            quick,
            commit: machine.commit.clone(),
            date: crate::corpus::now(),
            missing: None,
            runs: Vec::new(),
        }
    }

    /// Writes it to `NAME.json`.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, out: &Path) -> Result<()> {
        let path = out.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// What the runs with this label printed.
    pub fn of(&self, label: &str) -> Vec<&Value> {
        self.runs.iter().filter(|run| run.label == label).map(|run| &run.result).collect()
    }

    /// The labels, each once, in their order.
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
