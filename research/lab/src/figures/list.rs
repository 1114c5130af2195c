//! The list of all measurements: `list.json`, in the order of runs and tables.
//!
//! A run is of this program, or of rampack if that is its first word. In it, `[FULL|QUICK]` is what
//! stands there at full size, or in a quick run; `<DEVICE: WORDS>` stands there for root where
//! /dev/DEVICE is; `{dump}` is the name of each dump of `each` in turn, `{file}` its path, and
//! `{typical}` the path of the first dump of a program. A run without its dump is left out.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::picture::Picture;
use crate::programs;
use crate::report::{Row, short};

/// Programs whose dumps the measurements store and load.
pub const DUMPED: [&str; 4] = ["python", "java", "node", "redis"];

/// What a run may take of root's devices.
const DEVICES: [&str; 3] = ["zram0", "loop-control", "ublk-control"];

/// A measurement.
#[derive(Deserialize)]
pub struct Measurement {
    /// Its name on the command line and in files.
    pub name: String,
    /// The heading over its tables.
    pub title: String,
    /// Its approximate time at full size, in seconds.
    pub seconds: u32,
    /// Whether it runs only when the command line names it.
    #[serde(default)]
    pub long: bool,
    /// What it needs of the machine: `root`, files, or programs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The dumps whose names stand for `{dump}`.
    #[serde(default)]
    each: Vec<String>,
    /// A label of each run, and its arguments, without `--json`.
    runs: Vec<(String, String)>,
    /// The tables of the results.
    pub tables: Vec<Table>,
}

/// A table of a part of the results.
#[derive(Deserialize)]
pub struct Table {
    /// What stands above it.
    pub about: String,
    /// Where the objects are that become rows, or lists of them.
    rows: Vec<String>,
    /// Values that an object must have.
    #[serde(default)]
    only: BTreeMap<String, Vec<Value>>,
    /// Names of columns, and where in such an object the cells are.
    columns: Vec<(String, String)>,
    pub pictures: Vec<Picture>,
}

pub fn measurements() -> Vec<Measurement> {
    serde_json::from_str(include_str!("list.json")).expect("a test reads it")
}

/// What is missing of a need, if it is not met.
pub fn missing(need: &str) -> Option<String> {
    let (met, what) = match need {
        "root" => (host::effective_user() == 0, "right of root".to_owned()),
        "rampack" => return programs::beside_us().err().map(|error| error.to_string()),
        file if file.starts_with('/') => (Path::new(file).exists(), format!("file {file}")),
        program => (programs::find(program).is_some(), format!("program {program}")),
    };
    (!met).then_some(what)
}

/// The size of the measurements, and what takes part.
pub struct Sizes {
    /// Whether sizes are small.
    pub quick: bool,
    /// The dumps that there are.
    dumps: Vec<String>,
    /// The devices of [`DEVICES`] that take part.
    devices: Vec<&'static str>,
}

impl Sizes {
    /// The sizes of a run with the dumps in this directory.
    pub fn new(quick: bool, directory: &Path) -> Sizes {
        let is_there = |name: &&str| directory.join(format!("{name}.pages")).is_file();
        let dumps = DUMPED.iter().chain(&["half"]).copied().filter(is_there).map(str::to_owned);
        let mut devices = DEVICES.to_vec();
        let is_root = host::effective_user() == 0;
        devices.retain(|name| is_root && Path::new("/dev").join(name).exists());
        Sizes { quick, dumps: dumps.collect(), devices }
    }

    /// The line with what is chosen of each pair of brackets.
    fn choose(&self, line: &str) -> String {
        let pick = |text: &str| match text.split_once('|') {
            Some((full, quick)) => (if self.quick { quick } else { full }).to_owned(),
            None => text.to_owned(),
        };
        let line = replace(line, ['[', ']'], pick);
        let with = |text: &str| match text.split_once(": ") {
            Some((device, words)) if self.devices.contains(&device) => words.to_owned(),
            _ => String::new(),
        };
        replace(&line, ['<', '>'], with)
    }
}

/// The text with `with` of each part between the two brackets in its place.
fn replace(text: &str, [open, close]: [char; 2], with: impl Fn(&str) -> String) -> String {
    let mut pieces = text.split(open);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |all, piece| {
        let (inside, rest) = piece.split_once(close).unwrap_or((piece, ""));
        all + &with(inside) + rest
    })
}

/// What a run of rampack begins with.
const OURS: &str = "rampack ";

/// The program of a run, and its arguments.
///
/// # Errors
/// That it is not there.
pub fn program(line: &str) -> Result<(PathBuf, &str)> {
    match line.strip_prefix(OURS) {
        Some(rest) => Ok((programs::beside_us()?, rest)),
        None => Ok((env::current_exe().context("cannot tell where this program is")?, line)),
    }
}

/// The whole command of a run.
pub fn command(line: &str) -> String {
    format!("{}{}", if line.starts_with(OURS) { "" } else { "rampack-lab " }, line.trim_end())
}

fn file(dump: &str) -> String {
    format!("dumps/{dump}.pages")
}

impl Measurement {
    /// Whether it needs dumps.
    pub fn has_dumps(&self) -> bool {
        self.runs.iter().any(|(_, line)| line.contains("{file}") || line.contains("{typical}"))
    }

    /// Its runs of this program: a label and the arguments.
    pub fn runs(&self, sizes: &Sizes) -> Vec<(String, String)> {
        let typical = sizes.dumps.iter().find(|dump| DUMPED.contains(&&***dump));
        let mut runs: Vec<(String, String)> = Vec::new();
        let once = [String::new()];
        let each = if self.each.is_empty() { &once[..] } else { &self.each };
        for dump in each.iter().filter(|dump| dump.is_empty() || sizes.dumps.contains(dump)) {
            for (label, line) in &self.runs {
                let line = sizes.choose(line).replace("{file}", &file(dump));
                let line = typical.map(|it| line.replace("{typical}", &file(it))).unwrap_or(line);
                if !line.contains("{typical}") {
                    runs.push((label.replace("{dump}", dump), line));
                }
            }
        }
        runs
    }
}

impl Table {
    /// The rows of a result. The label of its run comes first, if it has one.
    pub fn rows_of(&self, label: &str, result: &Value) -> Vec<Row> {
        let objects = self.rows.iter().filter_map(|at| result.pointer(at));
        let objects =
            objects.flat_map(|it| it.as_array().map_or(vec![it], |all| all.iter().collect()));
        let is_shown =
            |object: &&Value| self.only.iter().all(|(key, is)| is.contains(&object[key]));
        let row = |object: &Value| {
            let of = |pointer: &str| object.pointer(pointer).map_or("-".to_owned(), short);
            let label = (!label.is_empty()).then(|| ("of".to_owned(), label.to_owned()));
            let cells = self.columns.iter().map(|(name, at)| (name.clone(), of(at)));
            label.into_iter().chain(cells).collect()
        };
        objects.filter(is_shown).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn every_line_is_one_that_this_program_takes() {
        for (quick, devices) in [(false, 0), (false, 3), (true, 3)] {
            let dumps = DUMPED.iter().chain(&["half"]).map(|it| (*it).to_owned()).collect();
            let sizes = Sizes { quick, dumps, devices: DEVICES[..devices].to_vec() };
            for measurement in measurements() {
                let runs = measurement.runs(&sizes);
                assert!(!runs.is_empty(), "{}", measurement.name);
                for (_, line) in runs.iter().filter(|(_, line)| !line.starts_with(OURS)) {
                    let line = format!("rampack-lab {line} --json");
                    let parsed =
                        crate::args::Arguments::try_parse_from(line.split_ascii_whitespace());
                    assert!(parsed.is_ok(), "{line}: {}", parsed.err().expect("an error"));
                }
            }
        }
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        let sizes = Sizes { quick: true, dumps: vec!["half".to_owned()], devices: Vec::new() };
        let runs = |name: &str| {
            let all = measurements();
            all.iter().find(|it| it.name == name).expect("it is listed").runs(&sizes)
        };
        assert_eq!(
            (runs("estimate").len(), runs("locks-sim").len(), runs("locks").len()),
            (0, 0, 4)
        );
        let [one, _, churned] = &runs("pages")[..] else { panic!("three runs of half") };
        let line = "pages --corpus dumps/half.pages --threads 1 --repeat 1 --compare engine:epoch ";
        assert_eq!((&*one.0, &*one.1, &*churned.0), ("half", line, "half, churned"));
    }

    #[test]
    fn all_together_take_less_than_35_minutes() {
        let all = measurements();
        let short = all.iter().filter(|measurement| !measurement.long);
        assert!(short.map(|measurement| measurement.seconds).sum::<u32>() < 35 * 60);
    }
}
