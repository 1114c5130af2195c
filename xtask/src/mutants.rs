//! `cargo xtask mutants`: each patch below `testing/mutants` makes the product wrong. The chore
//! applies one after the other to a copy of the checkout, and the test that the patch names must
//! fail.

mod copy;
pub mod patch;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::git;
use copy::Copy;
use patch::Mutant;
use suite::{Suite, Verdict};

/// The words after `cargo xtask mutants`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Options {
    json: bool,
    /// Only patches of files that have changed since this commit.
    base: Option<String>,
    names: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--json" => options.json = true,
                "--changed" => {
                    let base = words.next().context("--changed needs a commit")?;
                    options.base = Some((*base).to_string());
                }
                _ if word.starts_with('-') => {
                    bail!("mutants has no option {word}; there are --changed and --json")
                }
                name => options.names.push(name.trim_end_matches(".patch").to_string()),
            }
        }
        Ok(options)
    }
}

/// How long the mutants of a change are tried beside the other tests.
const BESIDE_TESTS: Duration = Duration::from_secs(60);

/// What came of a mutant under one of its suites.
#[derive(Clone, Debug)]
pub struct Outcome {
    mutant: String,
    suite: Suite,
    verdict: Verdict,
    seconds: f64,
}

impl Outcome {
    /// What is wrong; `None` if the mutant was rejected.
    pub fn complaint(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Rejected(_) => None,
            other => Some(format!("mutant {}: {}: {}", self.mutant, self.suite, other)),
        }
    }

    fn json(&self) -> Value {
        json!({
            "mutant": self.mutant,
            "kind": self.suite.kind.name(),
            "suite": self.suite.to_string(),
            "rejected": self.complaint().is_none(),
            "verdict": self.verdict.to_string(),
            "seconds": self.seconds.round(),
        })
    }
}

/// Runs the chore. True if every mutant was rejected.
///
/// # Errors
/// An unknown option or name; a patch that cannot be read; git is missing.
pub fn run(root: &Path, target: &Path, words: &[&str]) -> Result<bool> {
    let options = Options::parse(words)?;
    let mut mutants = patch::all(root)?;
    for name in &options.names {
        let is_known = mutants.iter().any(|mutant| mutant.name == *name);
        ensure!(is_known, "testing/mutants has no {name}.patch");
    }
    mutants.retain(|it| options.names.is_empty() || options.names.contains(&it.name));
    if let Some(base) = &options.base {
        let changed = git::changed_since(root, base)?;
        mutants.retain(|mutant| mutant.concerns(&changed));
    }
    let outcomes = try_all(root, target, &mutants, 0, None)?;
    if options.json {
        let all: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
        let text = json!({ "chore": "mutants", "mutants": all });
        println!("{}", serde_json::to_string_pretty(&text)?);
    } else {
        print!("{}", table(&outcomes));
    }
    Ok(outcomes.iter().all(|outcome| outcome.complaint().is_none()))
}

/// Tries the mutants that concern what has changed since the branch left `origin/main`, or in the
/// last commit; `all` of them, or where git knows no such commit. Those of a change have
/// a minute, and the table says how many are left. The last digit of `seed` says which kind of
/// build comes first, so that many runs try all.
///
/// # Errors
/// As [`run`].
pub fn of_change(root: &Path, target: &Path, all: bool, seed: &str) -> Result<Vec<Outcome>> {
    let mut mutants = patch::all(root)?;
    if !all && let Some(changed) = git::last_change(root) {
        mutants.retain(|mutant| mutant.concerns(&changed));
    }
    let until = (!all).then(|| Instant::now() + BESIDE_TESTS);
    let first = seed.chars().next_back().and_then(|digit| digit.to_digit(16)).unwrap_or(0);
    let outcomes = try_all(root, target, &mutants, first as usize, until)?;
    print!("{}", table(&outcomes));
    let left = mutants.iter().map(|mutant| mutant.suites.len()).sum::<usize>() - outcomes.len();
    if left > 0 {
        println!("{left} were not tried: `cargo xtask mutants --changed` tries all of a change");
    }
    Ok(outcomes)
}

/// Tries each mutant under each of its suites: all of one kind together, because they share what
/// is built. The kind of number `first` comes first, and none begins after `until`.
fn try_all(
    root: &Path,
    target: &Path,
    mutants: &[Mutant],
    first: usize,
    until: Option<Instant>,
) -> Result<Vec<Outcome>> {
    let is_late = || until.is_some_and(|until| Instant::now() > until);
    if mutants.is_empty() {
        return Ok(Vec::new());
    }
    let copy = Copy::of(root, target)?;
    let mut tries: Vec<(&Suite, &Mutant)> =
        mutants.iter().flat_map(|it| it.suites.iter().map(move |suite| (suite, it))).collect();
    tries.sort_by_key(|(suite, mutant)| (suite.kind, &mutant.files, &mutant.name));
    let mut outcomes = Vec::new();
    let all = tries.len();
    let kinds: BTreeSet<_> = tries.iter().map(|(suite, _)| suite.kind).collect();
    let mut kinds = Vec::from_iter(kinds);
    let count = kinds.len();
    kinds.rotate_left(first % count);
    for kind in kinds {
        let of_kind = || tries.iter().filter(|(suite, _)| suite.kind == kind);
        // Whether each suite passes without a patch.
        let mut sound = BTreeMap::new();
        for (suite, mutant) in of_kind() {
            if is_late() {
                break;
            }
            let begun = Instant::now();
            if !sound.contains_key(suite) {
                let verdict = suite.verdict(&copy, "none")?;
                tell(&format!("no patch, {suite}: {verdict}"), begun);
                sound.insert(*suite, verdict);
            }
            let verdict = match &sound[suite] {
                Verdict::Passed => with_patch(&copy, mutant, suite)?,
                other => Verdict::Unsound(other.to_string()),
            };
            let what = format!("{}/{all} {}, {suite}: {verdict}", outcomes.len() + 1, mutant.name);
            tell(&what, begun);
            let (mutant, suite) = (mutant.name.clone(), (*suite).clone());
            let seconds = begun.elapsed().as_secs_f64();
            outcomes.push(Outcome { mutant, suite, verdict, seconds });
        }
    }
    outcomes.sort_by(|one, other| one.mutant.cmp(&other.mutant));
    Ok(outcomes)
}

fn with_patch(copy: &Copy, mutant: &Mutant, suite: &Suite) -> Result<Verdict> {
    let verdict = match copy.apply(&mutant.path)? {
        Ok(()) => suite.verdict(copy, &mutant.name),
        Err(why) => Ok(Verdict::NotApplied(why)),
    };
    copy.restore(&mutant.files)?;
    verdict
}

fn tell(what: &str, begun: Instant) {
    eprintln!("{what} ({:.0} s)", begun.elapsed().as_secs_f64());
}

fn table(outcomes: &[Outcome]) -> String {
    let width = outcomes.iter().map(|outcome| outcome.mutant.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Outcome { mutant, suite, verdict, seconds } in outcomes {
        text += &format!("{mutant:<width$}  {:<8} {seconds:>4.0} s  ", suite.kind.name());
        text += &format!("{}: {verdict}\n", suite.case());
    }
    let rejected = outcomes.iter().filter(|outcome| outcome.complaint().is_none()).count();
    text + &format!("{rejected} of {} mutants rejected\n", outcomes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_options_and_names() {
        let options = Options::parse(&["--changed", "HEAD~", "--json", "a", "b.patch"]).unwrap();
        assert_eq!((options.json, options.base.as_deref()), (true, Some("HEAD~")));
        assert_eq!(options.names, ["a", "b"]);
        assert!(Options::parse(&["--changed"]).is_err());
        assert!(Options::parse(&["--all"]).is_err());
    }

    #[test]
    fn only_a_failed_test_is_a_rejection() {
        let suite = Suite::parse("plain: cargo test -p rampack-zram --lib -- a::b").unwrap();
        let outcome = |verdict| Outcome {
            mutant: "forgets_all".into(),
            suite: suite.clone(),
            verdict,
            seconds: 1.0,
        };
        assert_eq!(outcome(Verdict::Rejected("it is lost".into())).complaint(), None);
        for verdict in [
            Verdict::Passed,
            Verdict::NotBuilt,
            Verdict::NotRun,
            Verdict::TimeIsUp,
            Verdict::NotApplied("no such file".into()),
            Verdict::Unsound("it does not build".into()),
        ] {
            let outcomes = [outcome(verdict)];
            let complaint = outcomes[0].complaint().unwrap();
            assert!(complaint.starts_with("mutant forgets_all: plain: cargo test"), "{complaint}");
            assert!(table(&outcomes).ends_with("\n0 of 1 mutants rejected\n"));
        }
    }
}
