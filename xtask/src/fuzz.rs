//! `cargo xtask fuzz`: builds the fuzz targets with libFuzzer and AddressSanitizer, runs them side
//! by side, and prints a table. A stable compiler is enough.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;
use serde_json::{Value, json};

use crate::cargo::cargo;
use crate::checkers::SANITIZED_C;

/// As cargo-fuzz builds them, and with the allocators' own calls of the sanitizer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address \
                     -Ccodegen-units=1 -Cdebug-assertions --cfg fuzzing --cfg asan";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Seconds for each target, if none are given.
const TIME: u64 = 60;
/// Seconds for one input. More is a hang.
const TIMEOUT: u64 = 60;
/// The longest input in bytes.
const LONGEST: u64 = 8192;
/// MiB of memory of a target, with what the sanitizer takes.
const MEMORY: u64 = 4096;
/// How often progress is printed.
const TELL: Duration = Duration::from_secs(30);

/// The words after `cargo xtask fuzz`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Options {
    seconds: u64,
    jobs: usize,
    json: bool,
    targets: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let jobs = thread::available_parallelism().map_or(1, usize::from);
        let mut options = Options { seconds: TIME, jobs, json: false, targets: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64> {
                let value = words.next().with_context(|| format!("{word} needs a number"))?;
                let number = value.parse().ok().filter(|number| *number > 0);
                number.with_context(|| format!("{word} {value}: not a number above 0"))
            };
            match *word {
                "--time" => options.seconds = number()?,
                "--jobs" => options.jobs = number()? as usize,
                "--json" => options.json = true,
                _ if word.starts_with('-') => {
                    bail!("fuzz has no option {word}; there are --time, --jobs and --json")
                }
                name => options.targets.push(name.to_string()),
            }
        }
        Ok(options)
    }
}

/// The result of one target.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Outcome {
    target: String,
    inputs: u64,
    per_second: u64,
    /// Edges of the program that were reached.
    coverage: u64,
    /// Inputs that reached something new.
    kept: u64,
    /// The inputs that found a fault.
    faults: Vec<String>,
}

impl Outcome {
    /// Reads a line of libFuzzer.
    fn line(&mut self, line: &str) {
        let after = |name: &str| line.split_once(name).map(|(_, rest)| rest.trim_start());
        let number = |text: &str| {
            let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
            text[..digits].parse::<u64>().unwrap_or(0)
        };
        if let Some(rest) = after("Test unit written to ") {
            self.faults.push(rest.trim().to_string());
        } else if let Some(rest) = after("stat::number_of_executed_units:") {
            self.inputs = number(rest);
        } else if let Some(rest) = after("stat::average_exec_per_sec:") {
            self.per_second = number(rest);
        } else if let Some(rest) = line.strip_prefix('#') {
            self.inputs = self.inputs.max(number(rest));
            for (name, count) in [("cov:", &mut self.coverage), ("corp:", &mut self.kept)] {
                *count = after(name).map_or(*count, number);
            }
            self.per_second = after("exec/s:").map_or(self.per_second, number);
        }
    }

    fn json(&self) -> Value {
        json!({
            "target": self.target,
            "inputs": self.inputs,
            "per_second": self.per_second,
            "coverage": self.coverage,
            "kept": self.kept,
            "faults": self.faults,
        })
    }
}

/// Runs the chore. True if no target found a fault.
///
/// # Errors
/// An unknown option or target; the build fails.
pub fn run(root: &Path, target: &Path, words: &[&str]) -> Result<bool> {
    let options = Options::parse(words)?;
    let known = targets(root)?;
    for name in &options.targets {
        ensure!(known.contains(name), "no fuzz target {name}; there are {}", known.join(", "));
    }
    let chosen = if options.targets.is_empty() { known } else { options.targets.clone() };
    let place = Place { root, built: target.join("fuzz") };
    place.build(&chosen)?;
    let outcomes = place.run_all(&chosen, &options)?;
    let found = outcomes.iter().map(|outcome| outcome.faults.len()).sum::<usize>();
    if options.json {
        let all: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
        let text = json!({ "chore": "fuzz", "seconds": options.seconds, "targets": all });
        println!("{}", serde_json::to_string_pretty(&text)?);
    } else {
        print!("{}", text(&outcomes));
    }
    Ok(found == 0)
}

/// The names of all targets.
fn targets(root: &Path) -> Result<Vec<String>> {
    let directory = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".rs").map(str::to_string));
    }
    names.sort();
    Ok(names)
}

fn text(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<20} {:>12} {:>9} {:>9} {:>7} {:>7}\n",
        "target", "inputs", "a second", "coverage", "kept", "faults"
    );
    for Outcome { target, inputs, per_second, coverage, kept, faults } in outcomes {
        text += &format!(
            "{target:<20} {inputs:>12} {per_second:>9} {coverage:>9} {kept:>7} {:>7}\n",
            faults.len()
        );
    }
    let inputs: u64 = outcomes.iter().map(|outcome| outcome.inputs).sum();
    let faults: Vec<&String> = outcomes.iter().flat_map(|outcome| &outcome.faults).collect();
    text += &format!("{inputs} inputs, {} faults\n", faults.len());
    faults.iter().for_each(|path| text += &format!("  {path}\n"));
    text
}

/// The checkout, and where the targets are built.
struct Place<'a> {
    root: &'a Path,
    built: PathBuf,
}

impl Place<'_> {
    fn build(&self, chosen: &[String]) -> Result<()> {
        let corpus = self.corpus();
        let mut seeds = cargo(self.root);
        seeds.args(["run", "--quiet", "--package", "rampack-fuzzing", "--bin", "fuzz-seeds", "--"]);
        succeed(seeds.arg(&corpus))?;
        let mut build = cargo(self.root);
        build.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
        build.args(["--target", TRIPLE]).args(chosen.iter().flat_map(|name| ["--bin", name]));
        build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS).env("CFLAGS", SANITIZED_C);
        build.env("CARGO_TARGET_DIR", &self.built);
        // Optimisation across crates takes long, and blurs what was covered.
        build.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG", "1");
        succeed(&mut build)
    }

    /// Inputs are kept from run to run.
    fn corpus(&self) -> PathBuf {
        self.root.join("fuzz/corpus")
    }

    fn run_all(&self, chosen: &[String], options: &Options) -> Result<Vec<Outcome>> {
        let waiting: Mutex<VecDeque<&String>> = Mutex::new(chosen.iter().collect());
        let done: Mutex<Vec<Result<Outcome>>> = Mutex::default();
        thread::scope(|scope| {
            for _ in 0..options.jobs.min(chosen.len()) {
                scope.spawn(|| {
                    loop {
                        let next = unpoisoned(&waiting).pop_front();
                        let Some(name) = next else { return };
                        let outcome = self.run_one(name, options.seconds);
                        unpoisoned(&done).push(outcome.with_context(|| name.clone()));
                    }
                });
            }
        });
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut outcomes = done.into_iter().collect::<Result<Vec<Outcome>>>()?;
        outcomes.sort_by(|one, other| one.target.cmp(&other.target));
        Ok(outcomes)
    }

    /// Runs one target until its time is up or it finds a fault.
    fn run_one(&self, name: &str, seconds: u64) -> Result<Outcome> {
        let artifacts = self.root.join("fuzz/artifacts").join(name);
        fs::create_dir_all(&artifacts)?;
        let mut command = Command::new(self.built.join(TRIPLE).join("release").join(name));
        command.arg(self.corpus().join(name)).current_dir(self.root);
        command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={LONGEST}"));
        command.arg(format!("-timeout={TIMEOUT}")).arg(format!("-rss_limit_mb={MEMORY}"));
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.args(["-print_final_stats=1", "-detect_leaks=0"]);
        command.env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let output = child.stderr.take().context("its output")?;
        let mut outcome = Outcome { target: name.to_string(), ..Outcome::default() };
        let (mut told, mut last) = (Instant::now(), VecDeque::new());
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            outcome.line(&line);
            if told.elapsed() > TELL {
                told = Instant::now();
                let Outcome { inputs, per_second, coverage, .. } = outcome;
                eprintln!("{name}: {inputs} inputs, {per_second} a second, coverage {coverage}");
            }
            last.push_back(line);
            if last.len() > 60 {
                last.pop_front();
            }
        }
        let status = child.wait().with_context(|| format!("{command:?}"))?;
        if !status.success() {
            if outcome.faults.is_empty() {
                outcome.faults.push(format!("{name}: {status}"));
            }
            last.iter().for_each(|line| eprintln!("{name}: {line}"));
        }
        Ok(outcome)
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_libfuzzer_are_understood() {
        let mut outcome = Outcome::default();
        for line in [
            "INFO: Seed: 1234",
            "#2\tINITED cov: 115 ft: 116 corp: 1/1b exec/s: 0 rss: 61Mb",
            "#32768\tpulse  cov: 812 ft: 1400 corp: 99/12Kb lim: 320 exec/s: 4096 rss: 90Mb",
            "stat::number_of_executed_units: 61000",
            "stat::average_exec_per_sec:     3050",
        ] {
            outcome.line(line);
        }
        let Outcome { inputs, per_second, coverage, kept, .. } = outcome;
        assert_eq!((inputs, per_second, coverage, kept), (61_000, 3050, 812, 99));
        outcome.line("artifact_prefix='a/'; Test unit written to a/crash-12ab");
        assert_eq!(outcome.faults, ["a/crash-12ab"]);
        let text = text(&[outcome]);
        assert!(text.contains("61000 inputs, 1 faults\n  a/crash-12ab"), "{text}");
    }

    #[test]
    fn words_are_options_and_targets() {
        let options = Options::parse(&["--time", "3600", "nbd_requests", "--json"]).unwrap();
        assert_eq!((options.seconds, options.json), (3600, true));
        assert_eq!(options.targets, ["nbd_requests"]);
        for bad in [&["--time"][..], &["--time", "soon"], &["--time", "0"], &["--for", "ever"]] {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_target_is_built() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        for name in targets(&root).unwrap() {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/");
        }
    }
}
