//! The rules about sizes, widths, words and paths in the tree.

use std::path::Path;

use super::Finding;
use crate::source::{Source, has_word};
use crate::tree::{File, Tree};

/// The most lines of a source file, without tests.
const FILE_LINES: usize = 600;
/// The most lines of the experiments, with tests and comments.
const RESEARCH_LINES: usize = 20_000;
/// The most characters of a line.
const LINE_CHARS: usize = 100;
/// The most bytes of a file. A program made any larger file, which belongs elsewhere.
const FILE_BYTES: usize = 256 * 1024;
/// The registry of every foreign crate.
const INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Former words of this project, and the words of the field that replaced them.
const VOCABULARY: &[(&str, &str)] = &[
    ("lane", "a CPU"),
    ("Lane", "Cpu"),
    ("lanes", "CPUs"),
    ("Pins", "ReaderEpochs"),
    ("door", "a frontend"),
    ("Door", "Frontend"),
    ("doors", "frontends"),
    ("crew", "workers"),
    ("deed", "an action"),
    ("mood", "a fault mode"),
    ("Rooms", "WaitQueues"),
    ("Bell", "EventCount"),
    ("Workshop", "Factory"),
    ("Belongings", "Shared"),
    ("lent", "allocated"),
    ("stocks", "pcp lists"),
    ("shelf", "a free list"),
    ("shelves", "free lists"),
    ("limbo", "quarantine"),
    ("tenant", "a memcg"),
    ("Tenant", "Memcg"),
    ("HeapWorld", "HeapProvider"),
    ("laboratory", "the lab"),
];

/// Runs the rules of this file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        blobs(file, &mut findings);
        if let Some(text) = file.text() {
            machines(file, text, &mut findings);
            if file.path.ends_with(".md") {
                widths(file, text, &mut findings);
            }
            if file.path.ends_with("Cargo.lock") {
                sources_of_crates(file, text, &mut findings);
            }
        }
    }
    experiments(tree, &mut findings);
    for source in &tree.sources {
        lengths(source, &mut findings);
        words(source, &mut findings);
        opening(source, &mut findings);
    }
    findings
}

fn find(findings: &mut Vec<Finding>, path: &str, line: usize, rule: &'static str, message: String) {
    findings.push(Finding { path: path.to_string(), line, rule, message });
}

fn blobs(file: &File, findings: &mut Vec<Finding>) {
    let message = if file.bytes.len() > FILE_BYTES {
        format!("{} bytes; {FILE_BYTES} are allowed: let a test make it", file.bytes.len())
    } else if file.bytes.contains(&0) || file.text().is_none() {
        "not text: let a test make it, or write it as numbers".to_string()
    } else {
        return;
    };
    find(findings, &file.path, 0, "blob", message);
}

fn widths(file: &File, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(text.lines()) {
        let table = line.trim_start().starts_with('|');
        if !table {
            width(&file.path, number, line, findings);
        }
    }
}

fn width(path: &str, number: usize, line: &str, findings: &mut Vec<Finding>) {
    let chars = line.chars().count();
    if chars > LINE_CHARS && !line.contains("://") {
        let message = format!("{chars} characters; break the line at {LINE_CHARS}");
        find(findings, path, number, "width", message);
    }
}

fn lengths(source: &Source, findings: &mut Vec<Finding>) {
    // Tests contain the output of programs, line for line.
    for (number, line) in source.product_lines() {
        width(&source.path, number, &line.text, findings);
    }
    let lines = source.product_lines().count();
    if lines > FILE_LINES {
        let message = format!("{lines} lines; {FILE_LINES} are allowed: split it by what it holds");
        find(findings, &source.path, 0, "length", message);
    }
}

fn experiments(tree: &Tree, findings: &mut Vec<Finding>) {
    let of = |source: &&Source| source.path.starts_with("research/");
    let lines: usize = tree.sources.iter().filter(of).map(|source| source.lines.len()).sum();
    if lines > RESEARCH_LINES {
        let message =
            format!("{lines} lines of Rust; {RESEARCH_LINES} are allowed: say less twice");
        find(findings, "research", 0, "length", message);
    }
}

fn words(source: &Source, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(&source.lines) {
        let mut say = |message: String| {
            find(findings, &source.path, number, "words", message);
        };
        for name in ["todo!", "unimplemented!", "dbg!"] {
            if has_word(&line.code, name) {
                say(format!("{name} is for a draft: write the code, or return an error"));
            }
        }
        for name in ["FIXME", "XXX", "TODO", "HACK"] {
            if has_word(&line.comment, name) {
                say(format!("{name}: do it now, or open an issue"));
            }
        }
        for (own, field) in VOCABULARY {
            if has_word(&line.code, own) || has_word(&line.comment, own) {
                say(format!("{own}: say what people who know Linux say, {field}"));
            }
        }
        if line.code.contains("#[ignore]") {
            say("an ignored test proves nothing: run it, or give it a `testkit::Need`".into());
        }
    }
}

/// Each file of a crate begins with a description of its contents.
fn opening(source: &Source, findings: &mut Vec<Finding>) {
    let inside = source.path.contains("/src/") && source.crate_name().is_some();
    if !inside || source.test {
        return;
    }
    let first = source.lines.iter().find(|line| !line.text.trim().is_empty());
    if !first.is_some_and(|line| line.text.starts_with("//!")) {
        let message = "begins without a word: open it with `//!` and what it holds".to_string();
        find(findings, &source.path, 0, "opening", message);
    }
}

/// Finds absolute paths and host names that exist on one machine only.
fn machines(file: &File, text: &str, findings: &mut Vec<Finding>) {
    // The texts are split, so that the rule does not find this file.
    let paths = [concat!("/wo", "rk/"), concat!("/tmp/", "target"), concat!("/ho", "me/")];
    let hosts = [concat!(".inte", "rnal"), concat!(".lo", "cal"), concat!(".co", "rp")];
    for (number, line) in (1..).zip(text.lines()) {
        for path in paths {
            if starts_a_path(line, path) {
                let message = format!("{path} is a path of one machine: make it relative");
                find(findings, &file.path, number, "machine", message);
            }
        }
        for address in line.split("://").skip(1) {
            let host = address.split(['/', ':', ' ', '"', '\'', ')', '>']).next().unwrap_or("");
            if hosts.iter().any(|end| host.ends_with(end)) {
                let message = format!("{host} is a host of one network: use the public one");
                find(findings, &file.path, number, "machine", message);
            }
        }
    }
}

/// Whether `path` begins an absolute path in `line`, and is not the middle of another.
fn starts_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '/'))
    })
}

/// Finds the path of this checkout in its files.
pub fn own_paths(tree: &Tree, root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let root = root.display().to_string();
    // A path such as `/src` is too short to be significant.
    if root.matches('/').count() < 2 {
        return findings;
    }
    for file in &tree.files {
        for (number, line) in (1..).zip(file.text().unwrap_or_default().lines()) {
            if line.contains(&root) {
                let message = format!("{root} is where this checkout is: make it relative");
                find(&mut findings, &file.path, number, "machine", message);
            }
        }
    }
    findings
}

fn sources_of_crates(file: &File, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in (1..).zip(text.lines()) {
        let source = line.strip_prefix("source = \"").and_then(|rest| rest.strip_suffix('"'));
        if source.is_some_and(|source| source != INDEX) {
            let message = format!("a crate from elsewhere than {INDEX}");
            find(findings, &file.path, number, "machine", message);
        }
    }
}
