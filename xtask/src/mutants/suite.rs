//! A suite that must reject a mutant: one test, and how it is built.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use super::copy::Copy;
use crate::cargo::{cargo_within, printed};
use crate::checkers::{self, Kind};
use crate::seed;

/// The random events of every suite: a mutant is rejected each time, or never.
const SEED: &str = "0x2a";
/// Seconds for a test. Of these, none takes more than a minute or two.
const LONGEST: u64 = 900;
/// Seconds for a build. The first of a kind builds everything.
const LONGEST_BUILD: u64 = 3600;
/// The exit status of `timeout` if the time was up.
const TIME_WAS_UP: i32 = 124;
/// The most characters of a message in the table.
const SAID: usize = 90;

/// A test.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Suite {
    pub kind: Kind,
    /// The words that choose the test program.
    words: Vec<String>,
    /// The whole name of the test.
    pub test: String,
    /// Variables and their values.
    pub with: Vec<(String, String)>,
}

/// What a suite says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The test failed, with this message.
    Rejected(String),
    /// The test passed.
    Passed,
    /// It does not build.
    NotBuilt,
    /// There is no such test.
    NotRun,
    /// The test took too long.
    TimeIsUp,
    /// The patch does not apply, for this reason.
    NotApplied(String),
    /// The suite does not pass without the patch; this is its verdict.
    Unsound(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Rejected(said) => write!(f, "failed: {said}"),
            Verdict::Passed => f.write_str("passed"),
            Verdict::NotBuilt => f.write_str("does not build"),
            Verdict::NotRun => f.write_str("there is no such test"),
            Verdict::TimeIsUp => write!(f, "not done in {LONGEST} s"),
            Verdict::NotApplied(why) => write!(f, "the patch does not apply: {why}"),
            Verdict::Unsound(what) => write!(f, "without the patch: {what}"),
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, words) = (self.kind.name(), self.words.join(" "));
        write!(f, "{kind}: cargo test {words} -- {}", self.case())
    }
}

impl Suite {
    /// The test, and its variables.
    pub fn case(&self) -> String {
        let with = self.with.iter().map(|(variable, value)| format!(", {variable}={value}"));
        [self.test.clone()].into_iter().chain(with).collect()
    }

    /// Reads `KIND: cargo test WORDS -- TEST`.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn parse(line: &str) -> Result<Suite> {
        let (kind, rest) = line.split_once(": ").context("Suite: KIND: cargo test … -- TEST")?;
        let kind = Kind::of(kind).with_context(|| format!("there is no kind {kind}"))?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        match words[..] {
            ["cargo", "test", ref words @ .., "--", test] => Ok(Suite {
                kind,
                words: words.iter().map(|word| (*word).to_string()).collect(),
                test: test.to_string(),
                with: Vec::new(),
            }),
            _ => bail!("{rest}: not `cargo test … -- TEST`"),
        }
    }

    /// Builds and runs the test in the copy as it is now. What cargo and the test print is kept in
    /// a file that is named after the mutant.
    ///
    /// # Errors
    /// A command or a file fails.
    pub fn verdict(&self, copy: &Copy, mutant: &str) -> Result<Verdict> {
        let log = copy.log(&format!("{mutant}-{}-{}", self.kind.name(), self.test))?;
        let mut build = self.command(copy, LONGEST_BUILD);
        let (built, _) = logged(build.arg("--no-run"), &log)?;
        if !built.success() {
            return Ok(Verdict::NotBuilt);
        }
        let mut test = self.command(copy, LONGEST);
        let (status, lines) = logged(test.args(["--", "--exact", &self.test]), &log)?;
        Ok(judge(status.success(), status.code(), &lines))
    }

    fn command(&self, copy: &Copy, seconds: u64) -> Command {
        let mut command = cargo_within(seconds, &copy.tree);
        command.arg("test");
        self.kind.set(&mut command, &copy.target);
        // All others are built anew for each mutant, and fail early.
        if self.kind == Kind::Loom {
            checkers::release(self.kind, &mut command);
        }
        command.args(&self.words);
        // A patch changes a few lines. Two builds of a kind differ by no more.
        command.env("CARGO_INCREMENTAL", "1");
        command.env(seed::VARIABLE, SEED);
        command.envs(self.with.iter().map(|(variable, value)| (variable, value)));
        command
    }
}

/// The verdict on a test program that ended so, and printed these lines.
fn judge(success: bool, code: Option<i32>, lines: &[String]) -> Verdict {
    if !lines.iter().any(|line| line == "running 1 test") {
        return Verdict::NotRun;
    }
    match (success, code) {
        (true, _) => Verdict::Passed,
        (false, Some(TIME_WAS_UP)) => Verdict::TimeIsUp,
        // No other test runs, so it is this one that failed, or ended the process.
        (false, _) => Verdict::Rejected(message(lines)),
    }
}

/// The message of the last panic or of the sanitizer.
fn message(lines: &[String]) -> String {
    let sanitizer = lines.iter().find(|line| line.contains("ERROR: AddressSanitizer"));
    let mut panics = lines.windows(2).filter(|two| two[0].contains(" panicked at "));
    let said = sanitizer.or_else(|| panics.next_back().map(|two| &two[1]));
    let said = said.map_or("the process ended", String::as_str);
    said.trim().chars().take(SAID).collect()
}

/// Runs a command, and adds what it prints to a file. Returns the lines, too.
fn logged(command: &mut Command, log: &Path) -> Result<(ExitStatus, Vec<String>)> {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(log)?;
    writeln!(file, "$ {command:?}")?;
    let mut lines = Vec::new();
    // A mutant may leave anything behind.
    let (status, _left) = printed(command, |line| {
        lines.push(line.to_string());
        Ok(writeln!(file, "{line}")?)
    })?;
    Ok((status, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_string).collect()
    }

    #[test]
    fn the_test_itself_must_fail() {
        let failed = lines(
            "running 1 test\n\nthread 'a' (12) panicked at testing/sim/a.rs:1:2:\nis lost\n\
             note: run with RUST_BACKTRACE=1\ntest a ... FAILED\n",
        );
        assert_eq!(judge(false, Some(101), &failed), Verdict::Rejected("is lost".into()));
        let died = lines("running 1 test\n==1==ERROR: AddressSanitizer: use-after-poison");
        let said = "==1==ERROR: AddressSanitizer: use-after-poison";
        assert_eq!(judge(false, None, &died), Verdict::Rejected(said.into()));
        let ended = Verdict::Rejected("the process ended".into());
        assert_eq!(judge(false, None, &lines("running 1 test")), ended);
        assert_eq!(judge(true, Some(0), &lines("running 1 test\ntest a ... ok")), Verdict::Passed);
        assert_eq!(judge(true, Some(0), &lines("running 0 tests")), Verdict::NotRun);
        assert_eq!(judge(false, Some(124), &lines("running 1 test")), Verdict::TimeIsUp);
        assert_eq!(judge(false, Some(101), &lines("error: no test target")), Verdict::NotRun);
    }

    #[test]
    fn a_suite_is_a_command() {
        let text = "killed: cargo test -p rampack-machine --test killed -- an_end";
        assert_eq!(Suite::parse(text).unwrap().to_string(), text);
    }
}
