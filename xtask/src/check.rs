//! `cargo xtask check`: all checks that are not tests.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cargo::{cargo, workspace_of};
use crate::{crates, git, rules};

/// The product with what tests it, and the experiments.
const WORKSPACES: [&str; 2] = ["crates", "research"];
/// The package that other programs are built with.
const LIBRARY: &str = "rampack";

/// Runs all checks, even if one fails; what takes minutes only in a `long` run. True if all pass.
pub fn run(root: &Path, long: bool) -> Result<bool> {
    let mut failed = Vec::new();
    let mut step = |name: &'static str, outcome: Result<bool>| -> Result<()> {
        if !outcome? {
            failed.push(name);
        }
        Ok(())
    };
    step("rules", rules::run(root))?;
    for workspace in WORKSPACES {
        step(workspace, of_workspace(root, workspace))?;
    }
    // The tests have all features; users have the default ones.
    let mut plain = cargo(root);
    plain.args(["clippy", "--package", "rampack-cli", "--", "-D", "warnings"]);
    step("clippy without features", passes(&mut plain))?;
    step("crates", crates::check(root))?;
    if long {
        // A test of `testing/fuzzing` reads the text of these programs in every run.
        let mut fuzz = cargo(root);
        fuzz.args(["check", "--manifest-path", "fuzz/Cargo.toml", "--bins"]);
        step("fuzz targets", passes(&mut fuzz))?;
        step("interface", interface(root))?;
    }
    match failed.len() {
        0 => println!("check: all good"),
        _ => println!("check: failed: {}", failed.join(", ")),
    }
    Ok(failed.is_empty())
}

/// Checks the format, the licences and the lints of a workspace, even if one fails.
pub fn of_workspace(root: &Path, workspace: &str) -> Result<bool> {
    let of = workspace_of(workspace);
    let is_formed = passes(cargo(root).arg("fmt").args(of).args(["--all", "--check"]))?;
    let is_free = deny(root, of)?;
    let mut clippy = cargo(root);
    clippy.arg("clippy").args(of);
    clippy.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
    Ok(passes(&mut clippy)? && is_formed && is_free)
}

/// Checks licences, bans and sources of all dependencies of a workspace against deny.toml. It omits
/// advisories, because their database comes over the network and a check must give the same answer
/// everywhere. A machine without cargo-deny prints a note and fails nothing.
fn deny(root: &Path, workspace: &[&str]) -> Result<bool> {
    if !has_chore(root, "deny") {
        println!(
            "SKIPPED cargo deny: licences, bans and sources are not checked; \
             `cargo install cargo-deny --locked` brings it"
        );
        return Ok(true);
    }
    let mut deny = cargo(root);
    deny.arg("deny").args(["--config", "deny.toml"]).args(workspace);
    passes(deny.args(["check", "licenses", "bans", "sources"]))
}

/// Compares the interface of the library with that of the last release: what breaks a program needs
/// another version. A machine without cargo-semver-checks prints a note and fails nothing.
fn interface(root: &Path) -> Result<bool> {
    let base = git::last_release(root).filter(|_| has_chore(root, "semver-checks"));
    let Some(base) = base else {
        println!(
            "SKIPPED cargo semver-checks: the library's interface is not compared; \
             `cargo install cargo-semver-checks --locked` brings it"
        );
        return Ok(true);
    };
    let mut compare = cargo(root);
    passes(compare.args(["semver-checks", "--package", LIBRARY, "--baseline-rev", &base]))
}

/// Has cargo a chore of this name?
fn has_chore(root: &Path, name: &str) -> bool {
    let mut version = cargo(root);
    version.args([name, "--version"]).stdin(Stdio::null());
    let found = version.stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

fn passes(command: &mut Command) -> Result<bool> {
    let words: Vec<String> =
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    println!("$ cargo {}", words.join(" "));
    let status = command.stdin(Stdio::null()).status();
    Ok(status.with_context(|| format!("{command:?}"))?.success())
}
