//! The rules of the workspace, checked on the sources as text. They cover only what clippy and
//! rustc cannot check.

mod abilities;
mod circles;
mod dependencies;
mod finding;
mod flaws;
mod needs;
mod safety;
mod text;

use std::path::Path;

use anyhow::Result;

use crate::mutants;
use crate::tree::Tree;
pub use finding::Finding;

/// Checks the checkout at `root` and prints the findings. True if there are none.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let mut findings = all(&tree);
    findings.extend(safety::list_is_current(&tree));
    findings.extend(text::own_paths(&tree, root));
    findings.extend(mutants::patch::check(root));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("rules: {} files, nothing found", tree.files.len()),
        count => println!("rules: {count} findings"),
    }
    Ok(findings.is_empty())
}

/// Runs every rule that judges a file by its contents and place.
pub fn all(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(circles::check(tree));
    findings.extend(dependencies::check(tree));
    findings.extend(needs::check(tree));
    findings.extend(abilities::check(tree));
    findings.extend(flaws::check(tree));
    findings.extend(safety::check(tree));
    findings.extend(text::check(tree));
    findings
}

#[cfg(test)]
mod tests;
