//! The rule that no flaw stands in the product. A flaw that a test must find is a patch below
//! `testing/mutants`.

use super::Finding;
use crate::source::{Source, has_word};
use crate::tree::Tree;

/// What the product is built with under a checker.
const CHECKERS: [&str; 4] = ["asan", "loom", "shuttle", "killed"];

/// Where the product may be another under a checker. `sync` has the checker's atomics, these files
/// of `pagealloc` tell it which bytes are in use, and `service` has places where a test ends it.
const MAY_DIFFER: &[&str] = &[
    "crates/sync/",
    "crates/pagealloc/src/watch.rs",
    "crates/pagealloc/src/zone.rs",
    "crates/pagealloc/src/zone/grow.rs",
    "crates/service/src/swap.rs",
];

/// Runs the rule.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let product = |source: &&Source| source.path.starts_with("crates/") && !source.test;
    for source in tree.sources.iter().filter(product) {
        let may_differ = MAY_DIFFER.iter().any(|path| source.path.starts_with(path));
        for (number, line) in (1..).zip(&source.lines) {
            let code = line.code.as_str();
            let asks = code.contains("cfg(") || code.contains("cfg!(");
            let differs = asks && CHECKERS.iter().any(|checker| has_word(code, checker));
            let message = if code.to_lowercase().contains("flaw") {
                "a flaw in the product"
            } else if differs && !may_differ && !is_harmless(code) {
                "the product is another under a checker"
            } else if asks && (code.contains("not(test)") || code.contains("cfg!(test)")) {
                "the product is another in its tests"
            } else {
                continue;
            };
            findings.push(Finding {
                path: source.path.clone(),
                line: number,
                rule: "flaws",
                message: format!("{message}: make what is wrong a patch below testing/mutants"),
            });
        }
    }
    findings
}

/// Whether only a size differs, or an item is left out where the checker does not know it.
fn is_harmless(code: &str) -> bool {
    code.contains("const ") || code.contains("not(loom)")
}
