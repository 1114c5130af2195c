//! What git is asked: to apply a patch, what has changed, and what it says.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

/// Applies a patch to the files below `top`. Inside is what git says if it does not apply.
///
/// # Errors
/// Git cannot be run.
pub fn apply(top: &Path, patch: &Path, words: &[&str]) -> Result<Result<(), String>> {
    let mut git = Command::new("git");
    git.arg("apply").args(words).arg(fs::canonicalize(patch)?).current_dir(top);
    // In a directory below a repository git would leave out what is not in the repository.
    git.env("GIT_CEILING_DIRECTORIES", fs::canonicalize(top.join(".."))?);
    let output = git.output().context("git, of the package git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(if output.status.success() { Ok(()) } else { Err(said.trim().replace('\n', ", ")) })
}

/// The files that differ from commit `base`, new ones too.
///
/// # Errors
/// Git knows no such commit.
pub fn changed_since(root: &Path, base: &str) -> Result<BTreeSet<String>> {
    let changed = said(root, &["diff", "--name-only", base, "--"])?;
    let new = said(root, &["ls-files", "--others", "--exclude-standard"])?;
    Ok(changed.lines().chain(new.lines()).map(str::to_string).collect())
}

/// The files that differ from [`base`]. `None` where git knows no such commit.
pub fn last_change(root: &Path) -> Option<BTreeSet<String>> {
    changed_since(root, &base(root)?).ok()
}

/// The last release before this commit; [`base`] before there is any.
pub fn last_release(root: &Path) -> Option<String> {
    let tag = said(root, &["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~"]);
    tag.ok().or_else(|| base(root))
}

/// Where the branch left `origin/main`; on that branch itself, the commit before. `None` where git
/// knows neither.
fn base(root: &Path) -> Option<String> {
    let head = said(root, &["rev-parse", "HEAD"]).ok()?;
    let left = said(root, &["merge-base", "origin/main", "HEAD"]).ok();
    left.filter(|left| *left != head).or_else(|| said(root, &["rev-parse", "HEAD~"]).ok())
}

/// What it says to these words, without white space around.
///
/// # Errors
/// It cannot be run, or fails.
pub fn said(root: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new("git").args(words).current_dir(root).output();
    let output = output.context("git, of the package git")?;
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
