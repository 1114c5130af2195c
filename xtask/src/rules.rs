//! The rules of the house, checked on the sources as text. What clippy and rustc can say is left
//! to them; here is what only this project knows.

mod house;
mod needs;
mod rooms;
mod safety;
mod text;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::tree::Tree;

/// A line that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the top of the checkout.
    pub path: String,
    /// The line from one; zero when the whole file is meant.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong, and what to do instead.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line.max(1), self.rule, self.message)
    }
}

/// Checks the checkout at `root`; prints what it finds. True when there is nothing.
pub fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let mut findings = all(&tree);
    findings.extend(safety::list_is_current(&tree));
    findings.extend(text::own_paths(&tree, root));
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

/// Every rule that judges a file by its contents and place.
pub fn all(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(house::check(tree));
    findings.extend(needs::check(tree));
    findings.extend(rooms::check(tree));
    findings.extend(safety::check(tree));
    findings.extend(text::check(tree));
    findings
}

#[cfg(test)]
mod tests;
