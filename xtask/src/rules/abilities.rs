//! The rules about abilities of crates: to name an atomic, to wait, to ask for the current CPU, to
//! use std, to name the type of a codec.

use super::Finding;
use crate::source::{Source, has_word, word_at};
use crate::tree::Tree;

/// Crates that cannot do I/O, read a clock or start a thread.
const NO_STD: &[&str] = &[
    "units",
    "control",
    "block",
    "pagealloc",
    "zsmalloc",
    "zcomp",
    "objects",
    "segments",
    "pagelog",
    "zram",
    "zswap",
    "values",
];

/// The types of codecs. Crates open a codec by its name.
const CODECS: &[&str] = &["LzoRle", "Lzo", "Lz4", "Lz4hc", "Zstd", "Deflate", "Eight42"];

/// Crates that examine or compare codecs: the lab, models, test inputs.
const APART: &[&str] = &["designs", "lab", "sim", "testkit", "fuzzing", "xtask"];

/// The ways in which a thread waits for another. `sync::park` does this for all crates.
const WAITS: &[&str] =
    &["spin_loop", "yield_now", "thread::park", "sync::park", "FUTEX_WAIT", "SYS_futex"];

/// The file that lists calls of the system for filters, and makes none.
const LIST_OF_CALLS: &str = "crates/host/src/sandbox/calls.rs";

/// The ways in which a thread asks for its CPU, or keeps per-thread instead of per-CPU values.
const CPUS: &[&str] = &["sched_getcpu", "SYS_getcpu", "thread_local!"];

/// The crates that may use [`CPUS`]: the system, the servers of requests, and the interface of C,
/// which has an error message for each thread.
const ASK_FOR_CPUS: &[&str] = &["host", "nbd", "fuse", "ublk", "service", "cli", "capi"];

/// Runs the rules of this file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let Some(name) = source.crate_name() else { continue };
        atomics(source, name, &mut findings);
        codecs(source, name, &mut findings);
        let product = source.path.starts_with("crates/");
        if product && name != "sync" && source.path != LIST_OF_CALLS {
            let message = "waits in a way of its own: use the locks and counts of crates/sync";
            names(source, WAITS, "waiting", message, &mut findings);
        }
        if product && !ASK_FOR_CPUS.contains(&name) {
            let message = "the CPU is an argument: a frontend asks for it, once for a request";
            names(source, CPUS, "cpu", message, &mut findings);
        }
        if NO_STD.contains(&name) {
            no_std(source, name, &mut findings);
        }
    }
    findings
}

fn atomics(source: &Source, name: &str, findings: &mut Vec<Finding>) {
    if name == "sync" || name == "testkit" {
        return;
    }
    for (number, code) in statements(source) {
        // Groups count, too: `use std::sync::{Arc, atomic::AtomicBool}`.
        let direct = ["core::sync::atomic", "std::sync::atomic"];
        let grouped = ["core::sync::{", "std::sync::{", "core::{", "std::{"];
        let names = direct.iter().any(|path| has_word(&code, path))
            || (grouped.iter().any(|path| code.contains(path)) && has_word(&code, "atomic"));
        if names {
            findings.push(Finding {
                path: source.path.clone(),
                line: number,
                rule: "atomics",
                message: "only crates/sync names the atomics of std: use `sync::atomic`, which \
                          loom can replace"
                    .into(),
            });
        }
    }
}

/// Finds the words in the product's code of this file.
fn names(
    source: &Source,
    words: &[&str],
    rule: &'static str,
    message: &str,
    findings: &mut Vec<Finding>,
) {
    for (number, line) in source.product_lines() {
        for word in words.iter().filter(|word| has_word(&line.code, word)) {
            let message = format!("{word}: {message}");
            findings.push(Finding { path: source.path.clone(), line: number, rule, message });
        }
    }
}

fn no_std(source: &Source, name: &str, findings: &mut Vec<Finding>) {
    let mut find = |line, message: String| {
        findings.push(Finding { path: source.path.clone(), line, rule: "no-std", message });
    };
    let is_top = source.path == format!("crates/{name}/src/lib.rs");
    if is_top && !source.lines.iter().any(|line| line.code.trim() == "#![no_std]") {
        find(0, format!("{name} stands below the line without I/O: add `#![no_std]`"));
    }
    for (number, line) in source.product_lines() {
        if has_word(&line.code, "std::") || line.code.contains("extern crate std") {
            find(
                number,
                format!(
                    "{name} has no std, so that it can do no I/O: use core or alloc, or take the \
                     value from above"
                ),
            );
        }
    }
}

fn codecs(source: &Source, name: &str, findings: &mut Vec<Finding>) {
    if name == "zcomp" || APART.contains(&name) {
        return;
    }
    for (number, code) in statements(source) {
        // Another crate may have a type of that name, so only paths through `zcomp` count:
        // `zcomp::Lz4`, `use zcomp::{Lz4, Zstd}`.
        let Some(at) = word_at(&code, "zcomp::") else { continue };
        for codec in CODECS.iter().filter(|codec| has_word(&code[at..], codec)) {
            findings.push(Finding {
                path: source.path.clone(),
                line: number,
                rule: "codecs",
                message: format!("{codec} is opened by its name: use `zcomp::open`"),
            });
        }
    }
}

/// The lines of product code with their numbers. A `use` of several lines counts as one line.
fn statements(source: &Source) -> Vec<(usize, String)> {
    let mut statements: Vec<(usize, String)> = Vec::new();
    let mut importing = false;
    for (number, line) in source.product_lines() {
        match statements.last_mut() {
            Some((_, statement)) if importing => statement.push_str(line.code.trim()),
            _ => {
                importing = line.code.trim_start().trim_start_matches("pub ").starts_with("use ");
                statements.push((number, line.code.clone()));
            }
        }
        importing &= !line.code.contains(';');
    }
    statements
}
