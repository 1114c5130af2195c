//! What cannot be right of what another process left.

use alloc::{format, string::String, vec::Vec};

/// Findings that are told; more are counted.
const TOLD: usize = 100;

/// What cannot be right; empty after a death at any instant. docs/internals/kept-state.md has
/// the numbers that the findings bear.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Findings {
    /// The first hundred.
    pub told: Vec<String>,
    /// How many there are.
    pub all: u64,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, text: String) {
        self.all += 1;
        if self.told.len() < TOLD {
            self.told.push(text);
        }
    }

    /// Adds other findings.
    pub fn append(&mut self, others: Findings) {
        let more = others.more();
        others.told.into_iter().for_each(|text| self.add(text));
        self.all += more;
    }

    /// A line for each that is told, and how many others there are `of` something.
    #[must_use]
    pub fn lines(&self, of: &str) -> Vec<String> {
        let mut lines = self.told.clone();
        match self.more() {
            0 => {}
            more => lines.push(format!("{of}: there are {more} more findings")),
        }
        lines
    }

    /// How many are not told.
    #[must_use]
    pub fn more(&self) -> u64 {
        self.all - self.told.len() as u64
    }
}
