//! How many crates a user builds: `cargo tree` without what only tests and builds need.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::cargo;

/// The most crates that a package may consist of with its default features, itself included. Two
/// versions of a crate are two. A dependency that breaks this is a feature, or is left out.
const LIMITS: &[(&str, usize)] = &[("rampack", 45), ("rampack-cli", 125)];

/// Counts the crates of each package. True if none has too many.
pub fn check(root: &Path) -> Result<bool> {
    let mut all_good = true;
    for (package, most) in LIMITS {
        let crates = crates_of(root, package)?.len();
        println!("{package} consists of {crates} crates; {most} are allowed");
        all_good &= crates <= *most;
    }
    Ok(all_good)
}

/// The crates of a package, as `NAME VERSION`.
fn crates_of(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let mut tree = cargo(root);
    tree.args(["tree", "--package", package, "--edges", "normal", "--prefix", "none"]);
    let output = tree.output().with_context(|| format!("{tree:?}"))?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(name_and_version).collect())
}

fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::name_and_version;

    #[test]
    fn a_repeated_crate_is_one() {
        let lines = ["syn v2.0.119", "syn v2.0.119 (*)", "syn v2.0.119 (proc-macro)"];
        for line in lines {
            assert_eq!(name_and_version(line).as_deref(), Some("syn v2.0.119"));
        }
        assert_eq!(name_and_version(""), None);
    }
}
