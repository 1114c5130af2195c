//! The patches below `testing/mutants`.
//!
//! To make one, break the product, keep `git diff`, and write the head. A head says what is wrong,
//! and which suites must reject it:
//!
//! ```text
//! Compaction frees the old place of an object while readers may use it.
//!
//! Suite: shuttle: cargo test -p rampack-sim --test shuttle -- compaction
//! With: RAMPACK_SCHEDULES=1000
//! ```
//!
//! The word behind `Suite:` says how the test is built: `plain`, `loom`, `shuttle`, `killed` or
//! `asan`. The name of the test is its whole name. A line `With:` sets a variable of the suite
//! above it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use super::suite::Suite;
use crate::git;
use crate::rules::Finding;

/// Where the patches are, from the top of the checkout.
const DIRECTORY: &str = "testing/mutants";

/// A patch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    pub name: String,
    /// The path from the top of the checkout.
    pub path: String,
    /// The files that it changes.
    pub files: Vec<String>,
    /// The suites, each of which must reject it.
    pub suites: Vec<Suite>,
}

impl Mutant {
    fn parse(path: &str, text: &str) -> Result<Mutant> {
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".patch");
        let (said, diff) = text.split_once("\ndiff --git ").context("there is no `diff --git`")?;
        let about = said.split("\n\n").next().unwrap_or_default();
        ensure!(about.ends_with('.'), "the first paragraph must be a sentence: what is wrong");
        let mut suites: Vec<Suite> = Vec::new();
        for line in said.lines() {
            if let Some(suite) = line.strip_prefix("Suite: ") {
                suites.push(Suite::parse(suite)?);
            } else if let Some(with) = line.strip_prefix("With: ") {
                let (variable, value) = with.split_once('=').context("With: VARIABLE=VALUE")?;
                let suite = suites.last_mut().context("`With:` stands before any `Suite:`")?;
                suite.with.push((variable.to_string(), value.to_string()));
            }
        }
        if suites.is_empty() {
            bail!("no line `Suite: KIND: cargo test … -- TEST`");
        }
        let new = diff.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let mut files: Vec<String> = new.map(str::to_string).collect();
        files.sort();
        Ok(Mutant { name: name.to_string(), path: path.to_string(), files, suites })
    }

    /// Whether it, or a file that it changes, is one of these.
    pub fn concerns(&self, changed: &BTreeSet<String>) -> bool {
        changed.contains(&self.path) || self.files.iter().any(|file| changed.contains(file))
    }
}

/// All patches, by name.
///
/// # Errors
/// Names the patch that cannot be read.
pub fn all(root: &Path) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for path in paths(root)? {
        let text = fs::read_to_string(root.join(&path))?;
        mutants.push(Mutant::parse(&path, &text).with_context(|| path.clone())?);
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

fn paths(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(DIRECTORY))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".patch") {
            paths.push(format!("{DIRECTORY}/{name}"));
        }
    }
    Ok(paths)
}

/// Finds patches that cannot be read, or do not apply to the checkout.
pub fn check(root: &Path) -> Vec<Finding> {
    let find = |path: &str, message: String| Finding {
        path: path.to_string(),
        line: 0,
        rule: "mutants",
        message,
    };
    let paths = match paths(root) {
        Ok(paths) => paths,
        Err(error) => return vec![find(DIRECTORY, format!("cannot be read: {error:#}"))],
    };
    let mut findings = Vec::new();
    for path in paths {
        let text = fs::read_to_string(root.join(&path)).map_err(anyhow::Error::from);
        if let Err(error) = text.and_then(|text| Mutant::parse(&path, &text)) {
            findings.push(find(&path, format!("cannot be read: {error:#}")));
        }
        let applies = git::apply(root, &root.join(&path), &["--check"]);
        if let Err(why) = applies.unwrap_or_else(|error| Err(format!("{error:#}"))) {
            let message = format!("does not apply: {why}: make it anew on the code as it is");
            findings.push(find(&path, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::Kind;

    const TEXT: &str = "\
Slots are never freed.

Suite: shuttle: cargo test -p rampack-sim --test shuttle -- compaction
With: RAMPACK_SCHEDULES=1000
Suite: plain: cargo test -p rampack-zram --lib -- slots::tests::frees

diff --git a/crates/zram/src/b.rs b/crates/zram/src/b.rs
--- a/crates/zram/src/b.rs
+++ b/crates/zram/src/b.rs
@@ -1,1 +1,1 @@
-free();
+
diff --git a/crates/zram/src/a.rs b/crates/zram/src/a.rs
--- a/crates/zram/src/a.rs
+++ b/crates/zram/src/a.rs
@@ -1,1 +1,1 @@
-free();
+
";

    #[test]
    fn a_patch_says_what_must_reject_it() {
        let mutant = Mutant::parse("testing/mutants/frees_never.patch", TEXT).unwrap();
        assert_eq!(mutant.name, "frees_never");
        assert_eq!(mutant.files, ["crates/zram/src/a.rs", "crates/zram/src/b.rs"]);
        let [one, other] = &mutant.suites[..] else { panic!("{:?}", mutant.suites) };
        assert_eq!((one.kind, one.test.as_str()), (Kind::Shuttle, "compaction"));
        assert_eq!(one.with, [("RAMPACK_SCHEDULES".to_string(), "1000".to_string())]);
        assert_eq!((other.kind, other.with.len()), (Kind::Plain, 0));
        let changed = |path: &str| BTreeSet::from([path.to_string()]);
        assert!(mutant.concerns(&changed("crates/zram/src/b.rs")));
        assert!(mutant.concerns(&changed("testing/mutants/frees_never.patch")));
        assert!(!mutant.concerns(&changed("crates/zram/src/c.rs")));
    }

    #[test]
    fn a_patch_without_a_suite_is_refused() {
        for (word, instead) in [
            ("Suite: ", "Suites: "),
            ("diff --git", "diff"),
            ("freed.", "freed"),
            ("shuttle:", "quickly:"),
            ("-- compaction", "compaction"),
            ("S=1000", "S"),
        ] {
            let text = TEXT.replace(word, instead);
            assert!(Mutant::parse("x.patch", &text).is_err(), "{text}");
        }
    }

    /// `cargo xtask rules` says it, too. Here it is a test for who runs no rules.
    #[test]
    fn every_patch_applies() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let needed = [testkit::Need::program("git", "git")];
        if testkit::met("every_patch_applies", &needed) {
            assert_eq!(check(&root), []);
            assert!(all(&root).unwrap().len() > 30);
        }
    }
}
