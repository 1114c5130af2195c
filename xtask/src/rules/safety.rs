//! The rules about `unsafe`: its modules and its comments, and the comments of memory orderings.

use super::Finding;
use crate::source::{Source, has_word};
use crate::tree::Tree;

/// The modules with `unsafe` in them. Each says under `# Why unsafe` what safe Rust cannot do for
/// it. A new entry needs the same. Of the product, `host` has the code that calls the system; a
/// ring of io_uring, whose memory the kernel shares, is with its user.
const UNSAFE_MODULES: &[&str] = &[
    "crates/backing/src/ring.rs",
    "crates/capi/src/disk.rs",
    "crates/capi/src/instance.rs",
    "crates/capi/src/lib.rs",
    "crates/capi/src/caller.rs",
    "crates/capi/src/serve.rs",
    "crates/capi/src/store.rs",
    "crates/fuse/src/ring.rs",
    "crates/host/src/cpu.rs",
    "crates/host/src/descriptors.rs",
    "crates/host/src/frees/bpf.rs",
    "crates/host/src/heap.rs",
    "crates/host/src/ioctl.rs",
    "crates/host/src/memfd.rs",
    "crates/host/src/memfd/secret.rs",
    "crates/host/src/memory.rs",
    "crates/host/src/message.rs",
    "crates/host/src/mmap.rs",
    "crates/host/src/mounts.rs",
    "crates/host/src/oom.rs",
    "crates/host/src/others_memory.rs",
    "crates/host/src/peer.rs",
    "crates/host/src/program.rs",
    "crates/host/src/resident.rs",
    "crates/host/src/sandbox/files.rs",
    "crates/host/src/sandbox/install.rs",
    "crates/host/src/secret.rs",
    "crates/host/src/signals.rs",
    "crates/host/src/stack.rs",
    "crates/host/src/started.rs",
    "crates/host/src/swap.rs",
    "crates/host/src/time.rs",
    "crates/objects/src/store.rs",
    "crates/pagealloc/src/frames.rs",
    "crates/pagealloc/src/table.rs",
    "crates/pagealloc/src/table/model.rs",
    "crates/pagealloc/src/watch.rs",
    "crates/pagealloc/src/provider.rs",
    "crates/pagealloc/src/zone.rs",
    "crates/sync/src/mutex.rs",
    "crates/sync/src/prefetch.rs",
    "crates/sync/src/published.rs",
    "crates/ublk/src/control_ring.rs",
    "crates/ublk/src/ring.rs",
    "crates/values/src/engine/contents.rs",
    "crates/zcomp/src/codec/deflate.rs",
    "crates/zcomp/src/codec/liblz4.rs",
    "crates/zcomp/src/codec/sequences.rs",
    "crates/zram/src/engine/contents.rs",
    "crates/zram/src/slots.rs",
    "crates/zram/src/slots/bit_lock.rs",
    "crates/zram/src/slots/lines.rs",
    "crates/zsmalloc/src/compact.rs",
    "crates/zsmalloc/src/pool.rs",
    "crates/zsmalloc/src/zspage.rs",
    "crates/zswap/src/engine/contents.rs",
    "crates/zswap/src/index/contract.rs",
    "crates/zswap/src/index/flat.rs",
    "research/designs/src/indexes/red_black.rs",
    "research/designs/src/indexes/trees.rs",
    "research/designs/src/indexes/xarray.rs",
    "research/designs/src/locks/rwlock.rs",
    "research/designs/src/slots/epoch.rs",
    "research/designs/src/slots/locked.rs",
    "research/designs/src/zones/list_zone.rs",
    "research/lab/src/sys.rs",
    "research/lab/src/zone/ticks.rs",
    "testing/guestkit/src/lossy.rs",
    "testing/guestkit/src/mapped.rs",
    "testing/guestkit/src/proc.rs",
    "testing/guestkit/src/process.rs",
    "testing/soak/src/processes.rs",
    "testing/testkit/src/heap.rs",
];

/// The most lines between the start of a comment and its line of code.
const REACH: usize = 6;
/// The most lines from a `SAFETY:` comment to `unsafe`. Such comments are longer, and may be above
/// a statement of several lines.
const SAFETY_REACH: usize = 14;

/// Runs the rules of this file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| source.crate_name().is_some()) {
        unsafety(source, UNSAFE_MODULES.contains(&source.path.as_str()), &mut findings);
        orderings(source, &mut findings);
    }
    findings
}

/// Finds outdated entries of the list.
pub fn list_is_current(tree: &Tree) -> Vec<Finding> {
    let stale = |path: &&&str| {
        let source = tree.sources.iter().find(|source| source.path == ***path);
        !source.is_some_and(|source| source.product_lines().any(|(_, line)| has_unsafe(&line.code)))
    };
    let message = |path: &&str| Finding {
        path: file!().to_string(),
        line: 0,
        rule: "unsafe",
        message: format!("{path} has no unsafe code: take it off UNSAFE_MODULES"),
    };
    UNSAFE_MODULES.iter().filter(stale).map(message).collect()
}

fn has_unsafe(code: &str) -> bool {
    has_word(code, "unsafe")
}

/// Checks one file. If `listed`, the file may have unsafe code.
pub(super) fn unsafety(source: &Source, listed: bool, findings: &mut Vec<Finding>) {
    let mut find = |line, message: &str| {
        let (path, message) = (source.path.clone(), message.to_string());
        findings.push(Finding { path, line, rule: "unsafe", message });
    };
    let mut first = true;
    for (number, line) in source.product_lines() {
        if !has_unsafe(&line.code) {
            continue;
        }
        let names = line.code.trim() == "#[unsafe(no_mangle)]";
        if first {
            first = false;
            if !listed {
                find(
                    number,
                    "this module is not on the list of those with unsafe code: do it in safe Rust \
                     or in one of them, or add it to UNSAFE_MODULES in xtask/src/rules/safety.rs",
                );
            }
            let says_why = source.lines.iter().any(|line| line.comment.trim() == "# Why unsafe");
            if !says_why {
                find(number, "the module does not say why: add `//! # Why unsafe` and the reason");
            }
        }
        let declares = ["unsafe fn", "unsafe trait", "pub unsafe extern"]
            .iter()
            .any(|form| has_word(&line.code, form))
            && !line.code.contains("unsafe fn(");
        if declares {
            if !source.comment_near(number, 40, "# safety") {
                find(number, "say what the caller must keep to: add a `# Safety` section");
            }
        } else if names || line.code.contains("unsafe fn(") {
            // A function pointer type alone needs no comment. Nor does a name for C: its test has
            // the list of all.
        } else if !source.comment_near(number, SAFETY_REACH, "safety:") {
            find(number, "say why this is sound: put `// SAFETY: …` right above");
        }
    }
}

fn is_use(code: &str, of: &str) -> bool {
    code.trim_start().trim_start_matches("pub ").starts_with("use ") && code.contains(of)
}

/// Checks that a comment at each synchronising ordering names its partner.
pub(super) fn orderings(source: &Source, findings: &mut Vec<Finding>) {
    let strong = ["Acquire", "Release", "AcqRel", "SeqCst"];
    // A file that imports the names may use them bare; elsewhere `Release` may be anything.
    let bare = source.product_lines().any(|(_, line)| is_use(&line.code, "Ordering::"));
    for (number, line) in source.product_lines() {
        let code = line.code.trim_start();
        let named = |ordering: &&&str| {
            has_word(code, &format!("Ordering::{ordering}")) || (bare && has_word(code, ordering))
        };
        let Some(ordering) = strong.iter().find(named).filter(|_| !is_use(code, "")) else {
            continue;
        };
        if !source.comment_near(number, REACH, "pairs with") {
            findings.push(Finding {
                path: source.path.clone(),
                line: number,
                rule: "ordering",
                message: format!(
                    "{ordering} needs a partner: say in a comment within {REACH} lines above \
                     what it \"pairs with\", or make it Relaxed"
                ),
            });
        }
    }
}
