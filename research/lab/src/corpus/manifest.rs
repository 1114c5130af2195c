//! `manifest.json`: the dumps of a corpus, and how each was made.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::content::Content;

/// The manifest of a corpus.
#[derive(Serialize, Deserialize)]
pub struct Manifest {
    /// The program that made it.
    pub made_by: String,
    /// The time in UTC.
    pub date: String,
    /// Pages asked for of each program.
    pub pages_wanted: u32,
    /// The dumps.
    pub programs: Vec<Entry>,
    /// Programs that could not run.
    pub skipped: Vec<Skipped>,
}

/// One dump.
#[derive(Serialize, Deserialize)]
pub struct Entry {
    /// The name of the recipe.
    pub program: String,
    /// The program's version, in its own words.
    pub version: String,
    /// The command line of the program.
    pub command: String,
    /// The file, in the directory of the manifest.
    pub file: String,
    /// The time of the stop, in UTC.
    pub date: String,
    /// Figures of the file.
    #[serde(flatten)]
    pub content: Content,
}

/// A program that could not be run.
#[derive(Serialize, Deserialize)]
pub struct Skipped {
    /// The name of the recipe.
    pub program: String,
    /// The missing programs.
    pub missing: Vec<String>,
}

impl Manifest {
    /// An empty manifest.
    pub fn new(pages_wanted: u32) -> Manifest {
        let made_by = format!("rampack-lab {}", env!("CARGO_PKG_VERSION"));
        let (programs, skipped) = (Vec::new(), Vec::new());
        Manifest { made_by, date: now(), pages_wanted, programs, skipped }
    }

    /// Takes over entries of the manifest in `directory` for programs that are not in this one, if
    /// their dumps still exist. Ignores a manifest that cannot be read.
    pub fn take_over(&mut self, directory: &Path) {
        let text = fs::read_to_string(directory.join("manifest.json")).unwrap_or_default();
        let Ok(before) = serde_json::from_str::<Manifest>(&text) else { return };
        for entry in before.programs {
            let known = self.programs.iter().any(|other| other.program == entry.program);
            if !known && directory.join(&entry.file).is_file() {
                self.programs.push(entry);
            }
        }
    }

    /// Writes the manifest to `directory`.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join("manifest.json");
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = &self.content;
        write!(
            f,
            "{:8} {:7} pages, {:5.2} % zero, {:5.2} % same-filled, {:5.2} % identical, lz4 {:.2}",
            self.program,
            content.pages,
            content.zero_percent,
            content.same_filled_percent,
            content.identical_percent,
            content.lz4_ratio
        )
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8} skipped: {} is not installed", self.program, self.missing.join(", "))
    }
}

/// The time in UTC, as RFC 3339 writes it.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp(since.as_secs())
}

/// Seconds since 1970 as a date and time. The calendar repeats every 400 years of 146 097 days;
/// counted from 1 March 0000, leap days come last in a year.
fn timestamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let (month, carry) = if march_month < 10 { (march_month + 3, 0) } else { (march_month - 9, 1) };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        era * 400 + year + carry,
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests;
