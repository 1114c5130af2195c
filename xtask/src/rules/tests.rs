//! Each rule on a small tree that keeps to it and on one that breaks it.

use super::{Finding, all, safety, text};
use crate::source::Source;
use crate::tree::{File, Tree};

fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |(path, text): &(&str, &str)| File {
        path: (*path).to_string(),
        bytes: text.as_bytes().to_vec(),
    };
    Tree::new(files.iter().map(file).collect())
}

/// `path:line rule` of everything found.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    brief(all(&tree(files)))
}

fn brief(findings: Vec<Finding>) -> Vec<String> {
    let brief = |finding: Finding| {
        assert!(finding.message.len() > 20, "{finding} says too little");
        format!("{}:{} {}", finding.path, finding.line, finding.rule)
    };
    findings.into_iter().map(brief).collect()
}

fn manifest(rest: &str) -> String {
    format!("[package]\nname = \"x\"\n[lints]\nworkspace = true\n{rest}")
}

#[test]
fn a_clean_tree_has_no_findings() {
    let good = manifest(
        "[dependencies]\nunits.workspace = true\nsync.workspace = true\n\
         [target.'cfg(unix)'.dependencies]\nblock = { workspace = true }\n\
         [dev-dependencies]\nsim.workspace = true\ntempfile.workspace = true\n",
    );
    let lib = "//! Words.\n#![no_std]\nextern crate alloc;\n\
               #[cfg(test)]\nmod tests {\n    use std::sync::atomic::AtomicU8;\n}\n\
               #[cfg(test)]\nmod suite;\n";
    let files = [
        ("crates/zram/Cargo.toml", good.as_str()),
        ("crates/zram/src/lib.rs", lib),
        ("crates/zram/src/suite.rs", "use std::fs;\nuse zcomp::Lz4;\n"),
        ("crates/zram/src/suite/more.rs", "use std::fs;\n"),
        ("crates/zcomp/src/codec.rs", "//! The one list.\nuse zcomp::Lz4;\n"),
        (
            "README.md",
            "| a table |                                                                                          |\n",
        ),
    ];
    assert_eq!(found(&files), [""; 0]);
}

#[test]
fn no_flaw_stands_in_the_product() {
    let bad = "//! Words.\n#[cfg(any(shuttle, asan))]\nif self.without { return }\n\
               #[cfg(not(any(shuttle, asan)))]\nif cfg!(killed) {}\n\
               #[cfg(test)]\nflaw: Option<Flaw>,\n#[cfg(not(test))]\nlet waits = true;\n";
    let good = "//! A flaw.\n#![cfg(not(loom))]\nconst BAG: u8 = if cfg!(shuttle) { 4 } else { 9 };\n\
                #[cfg(feature = \"remote\")]\nmod remote;\n";
    let files = [
        ("crates/zram/src/a.rs", bad),
        ("crates/zram/src/b.rs", good),
        ("crates/zram/tests/c.rs", bad),
        ("crates/sync/src/d.rs", "//! Words.\n#[cfg(shuttle)]\nmod e;\n"),
    ];
    let expected = [2, 4, 5, 7, 8].map(|line| format!("crates/zram/src/a.rs:{line} flaws"));
    assert_eq!(found(&files), expected);
}

#[test]
fn calls_go_down() {
    let up = manifest("[dependencies]\nunits.workspace = true\nzram.workspace = true\n");
    assert_eq!(
        found(&[("crates/zcomp/Cargo.toml", &up)]),
        ["crates/zcomp/Cargo.toml:7 dependencies"]
    );
    let sideways = manifest("[dependencies]\nfuse.workspace = true\n");
    assert_eq!(
        found(&[("crates/nbd/Cargo.toml", &sideways)]),
        ["crates/nbd/Cargo.toml:6 dependencies"]
    );
    // What tests may have, products may not.
    let product = manifest("[dependencies]\ntestkit.workspace = true\ntempfile.workspace = true\n");
    assert_eq!(found(&[("crates/nbd/Cargo.toml", &product)]).len(), 2);
    let build = manifest("[build-dependencies]\nzram.workspace = true\n");
    assert_eq!(
        found(&[("crates/nbd/Cargo.toml", &build)]),
        ["crates/nbd/Cargo.toml:6 dependencies"]
    );
    let target = manifest("[target.'cfg(unix)'.dependencies]\nzram.workspace = true\n");
    assert_eq!(
        found(&[("crates/nbd/Cargo.toml", &target)]),
        ["crates/nbd/Cargo.toml:6 dependencies"]
    );
}

#[test]
fn strangers_are_let_in_by_name() {
    let at = |name: &str, rest: &str| {
        found(&[(
            &format!("crates/{name}/Cargo.toml"),
            &manifest(&format!("[dependencies]\n{rest}")),
        )])
    };
    assert_eq!(at("zcomp", "lz4-sys.workspace = true\n"), [""; 0]);
    assert_eq!(at("zram", "lz4-sys.workspace = true\n"), ["crates/zram/Cargo.toml:6 dependencies"]);
    assert_eq!(at("zram", "libc.workspace = true\n"), ["crates/zram/Cargo.toml:6 dependencies"]);
    assert_eq!(
        at("cli", "never-heard-of.workspace = true\n"),
        ["crates/cli/Cargo.toml:6 dependencies"]
    );
    assert_eq!(at("cli", "clap = \"4\"\n"), ["crates/cli/Cargo.toml:6 dependencies"]);
    let lab = "[package]\nname = \"rampack-lab\"\n[lints]\nworkspace = true\n";
    let places = found(&[("crates/lab/Cargo.toml", lab)]);
    assert!(places.contains(&"crates/lab/Cargo.toml:0 dependencies".to_string()), "{places:?}");
    assert_eq!(at("cellar", ""), ["crates/cellar/Cargo.toml:0 dependencies"]);
    let idle = "[package]\nname = \"x\"\n";
    assert_eq!(found(&[("crates/cli/Cargo.toml", idle)]), ["crates/cli/Cargo.toml:0 dependencies"]);
    assert_eq!(
        found(&[("crates/cli/Cargo.toml", "[package")]),
        ["crates/cli/Cargo.toml:0 dependencies"]
    );
}

#[test]
fn both_workspaces_build_alike() {
    let product = "[profile.release]\nlto = \"thin\"\n[workspace.dependencies]\nserde = \"1\"\n";
    let at =
        |research: &str| found(&[("Cargo.toml", product), ("research/Cargo.toml", research)]).len();
    assert_eq!(at(product), 0);
    let small = |what| product.replace("[works", &format!("[profile.{what}]\nx = 1\n[works"));
    assert_eq!(at(&product.replace("thin", "fat")), 1);
    assert_eq!([at(&small("release.package")), at(&small("other.package"))], [0, 1]);
    assert_eq!(at(&product.replace("\"1\"", "{ version = \"1\", features = [] }")), 1);
    assert_eq!(at(&product.replace("serde = \"1\"", "anyhow = \"1\"")), 0);
}

#[test]
fn waiting_stays_in_sync_and_cpus_are_arguments() {
    let waits = "//! x\nfn f() {\n    std::thread::yield_now();\n}\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", waits)]), ["crates/nbd/src/a.rs:3 waiting"]);
    assert!(found(&[("crates/sync/src/a.rs", waits)]).is_empty());
    assert!(found(&[("research/lab/src/a.rs", waits)]).is_empty());
    let asks = "//! x\nfn f() {\n    libc::sched_getcpu();\n}\n";
    assert_eq!(found(&[("crates/rampack/src/a.rs", asks)]), ["crates/rampack/src/a.rs:3 cpu"]);
    assert!(found(&[("crates/fuse/src/a.rs", asks)]).is_empty());
}

#[test]
fn atomics_stay_in_sync() {
    let direct = "//! A.\nuse std::sync::atomic::AtomicU8;\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", direct)]), ["crates/nbd/src/a.rs:2 atomics"]);
    let grouped = "//! A.\nuse std::sync::{\n    Arc,\n    atomic::AtomicU8,\n};\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", grouped)]), ["crates/nbd/src/a.rs:2 atomics"]);
    assert_eq!(found(&[("crates/sync/src/a.rs", direct)]), [""; 0]);
    assert_eq!(found(&[("crates/nbd/tests/a.rs", direct)]), [""; 0]);
    let ours = "//! A, not `std::sync::atomic`.\nuse sync::atomic::AtomicU8;\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", ours)]), [""; 0]);
}

#[test]
fn the_engine_has_no_std() {
    let lib = "//! A.\nextern crate std;\n";
    assert_eq!(
        found(&[("crates/zram/src/lib.rs", lib)]),
        ["crates/zram/src/lib.rs:0 no-std", "crates/zram/src/lib.rs:2 no-std"]
    );
    let clock = "//! A.\nfn a() { std::time::Instant::now(); }\n";
    assert_eq!(found(&[("crates/block/src/a.rs", clock)]), ["crates/block/src/a.rs:2 no-std"]);
    assert_eq!(found(&[("crates/host/src/a.rs", clock)]), [""; 0]);
}

#[test]
fn codecs_are_opened_by_their_names() {
    let one = "//! A.\nfn a() { zcomp::Lz4::new() }\n";
    assert_eq!(found(&[("crates/zram/src/a.rs", one)]), ["crates/zram/src/a.rs:2 codecs"]);
    let group = "//! A.\nuse zcomp::{\n    Compressor,\n    Zstd,\n};\n";
    assert_eq!(found(&[("crates/cli/src/a.rs", group)]), ["crates/cli/src/a.rs:2 codecs"]);
    assert_eq!(found(&[("research/lab/src/a.rs", group)]), [""; 0]);
    let other = "//! A.\nuse zcomp::Compressor;\nstruct Lz4;\n";
    assert_eq!(found(&[("crates/cli/src/a.rs", other)]), [""; 0]);
}

fn unsafety(text: &str, listed: bool) -> Vec<usize> {
    let mut findings = Vec::new();
    safety::unsafety(&Source::new("crates/host/src/a.rs", text), listed, &mut findings);
    findings.into_iter().map(|finding| finding.line).collect()
}

#[test]
fn unsafe_code_is_listed_and_explained() {
    let good = "//! A.\n//!\n//! # Why unsafe\n//! It calls C.\n\
                /// Calls.\n///\n/// # Safety\n/// `x` lives.\nunsafe fn a() {}\n\
                fn b() {\n    // SAFETY: x lives,\n    // see above.\n    unsafe { a() }\n}\n";
    assert_eq!(unsafety(good, true), [0; 0]);
    assert_eq!(unsafety(good, false), [9]);
    assert_eq!(unsafety(&good.replace("# Why unsafe", "# Why"), true), [9]);
    assert_eq!(unsafety(&good.replace("SAFETY:", "Well,"), true), [13]);
    assert_eq!(unsafety(&good.replace("# Safety", "Safe"), true), [9]);
    let lone = "//! # Why unsafe\nunsafe impl Send for A {}\n";
    assert_eq!(unsafety(lone, true), [2]);
    // A function for C: its name needs no comment, its pointers do.
    let for_c = "//! # Why unsafe\n/// # Safety\n/// `x` lives.\n#[unsafe(no_mangle)]\n\
                 pub unsafe extern \"C\" fn a() {}\n";
    assert_eq!(unsafety(for_c, true), [0; 0]);
    assert_eq!(unsafety(for_c, false), [4]);
    assert_eq!(unsafety(&for_c.replace("# Safety", "Safe"), true), [5]);
    // A file nobody listed, seen through the whole check.
    let files = [("crates/cli/src/a.rs", "//! A.\nfn a() { unsafe { b() } }\n")];
    assert!(!found(&files).is_empty());
    assert_eq!(found(&[("crates/cli/src/a.rs", "//! A, not unsafe.\n")]), [""; 0]);
    // An empty tree has none of the modules on the list.
    assert!(!safety::list_is_current(&tree(&[])).is_empty());
}

#[test]
fn orderings_name_their_partner() {
    let alone = "//! A.\nfn a() { b.load(Ordering::Acquire) }\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", alone)]), ["crates/nbd/src/a.rs:2 ordering"]);
    let paired = alone.replace("fn a", "// Pairs with the store in c.\nfn a");
    assert_eq!(found(&[("crates/nbd/src/a.rs", &paired)]), [""; 0]);
    let far = alone.replace("fn a", &format!("// Pairs with c.{}\nfn a", "\n".repeat(8)));
    assert_eq!(found(&[("crates/nbd/src/a.rs", &far)]), ["crates/nbd/src/a.rs:11 ordering"]);
    let bare = "//! A.\nuse sync::atomic::Ordering::{AcqRel, Relaxed};\nfn a() { b(AcqRel) }\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", bare)]), ["crates/nbd/src/a.rs:3 ordering"]);
    let other = "//! A.\nfn a() { b(Memory::Release, Ordering::Relaxed) }\n";
    assert_eq!(found(&[("crates/nbd/src/a.rs", other)]), [""; 0]);
}

#[test]
fn files_and_lines_have_bounds() {
    let long = format!("//! A.\n{}", "fn a() {}\n".repeat(600));
    assert_eq!(found(&[("crates/nbd/src/a.rs", &long)]), ["crates/nbd/src/a.rs:0 length"]);
    assert_eq!(found(&[("crates/nbd/tests/a.rs", &long)]), [""; 0]);
    let tested = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "fn a() {}\n".repeat(600));
    assert_eq!(found(&[("crates/nbd/src/a.rs", &tested)]), [""; 0]);
    let file = |lines: usize| format!("//! A.\n{}", "fn a() {}\n".repeat(lines - 1));
    let both = [file(10_000), file(10_001)];
    let research = [("research/lab/tests/a.rs", &*both[0]), ("research/lab/tests/b.rs", &both[1])];
    assert_eq!(found(&research), ["research:0 length"]);
    assert_eq!(found(&[research[0], research[0]]), [""; 0]);
    let wide = format!("//! A.\n// {}\n", "é".repeat(98));
    assert_eq!(found(&[("crates/nbd/src/a.rs", &wide)]), ["crates/nbd/src/a.rs:2 width"]);
    let fits = format!("//! A.\n// {}\n", "é".repeat(97));
    assert_eq!(found(&[("crates/nbd/src/a.rs", &fits)]), [""; 0]);
    let link = format!("//! A.\n// https://docs.kernel.org/{}\n", "a".repeat(98));
    assert_eq!(found(&[("crates/nbd/src/a.rs", &link)]), [""; 0]);
    assert_eq!(found(&[("README.md", &"a".repeat(101))]), ["README.md:1 width"]);
    assert_eq!(found(&[("a.txt", &"a".repeat(256 * 1024 + 1))]), ["a.txt:0 blob"]);
    assert_eq!(found(&[("a.bin", "a\0b")]), ["a.bin:0 blob"]);
}

#[test]
fn drafts_do_not_pass() {
    for (line, rule) in [
        ("fn a() { todo!() }", "words"),
        ("fn a() { unimplemented!() }", "words"),
        ("fn a() { dbg!(b) }", "words"),
        ("fn a() {} // TODO: b", "words"),
        ("/* FIXME */ fn a() {}", "words"),
        ("#[ignore]", "words"),
        ("fn a(lane: Lane) {}", "words"),
        ("fn a() {} // through the door", "words"),
    ] {
        let source = format!("//! A.\n{line}\n");
        let expected = format!("crates/nbd/tests/a.rs:2 {rule}");
        let mut found = found(&[("crates/nbd/tests/a.rs", &source)]);
        found.dedup();
        assert_eq!(found, [expected], "{line}");
    }
    let said = "//! A.\nconst A: &str = \"TODO todo!() lane\";\n";
    assert_eq!(found(&[("crates/nbd/tests/a.rs", said)]), [""; 0]);
    let mute = [("crates/nbd/src/a.rs", "use b;\n"), ("crates/nbd/tests/b.rs", "use b;\n")];
    assert_eq!(found(&mute), ["crates/nbd/src/a.rs:0 opening"]);
}

#[test]
fn nothing_names_one_machine() {
    let path = concat!("run /wo", "rk/main/x\n");
    assert_eq!(found(&[("docs/a.md", path)]), ["docs/a.md:1 machine"]);
    let middle = concat!("sys/wo", "rk/main https://docs.rs/wo", "rk/ $A/tmp/", "target\n");
    assert_eq!(found(&[("docs/a.md", middle)]), [""; 0]);
    let host = concat!("see https://crates.example.inte", "rnal/index\n");
    assert_eq!(found(&[("docs/a.md", host)]), ["docs/a.md:1 machine"]);
    let lock = "[[package]]\nsource = \"registry+https://example.org/index\"\n";
    assert_eq!(found(&[("Cargo.lock", lock)]), ["Cargo.lock:2 machine"]);
    let own = tree(&[("a.md", "in /srv/build/rampack/x\n")]);
    let root = std::path::Path::new("/srv/build/rampack");
    assert_eq!(brief(text::own_paths(&own, root)), ["a.md:1 machine"]);
}

#[test]
fn ci_installs_what_tests_need() {
    let test = "fn a() { met(\"a\", &[Need::program(\"mkfs.ext4\", \"e2fsprogs\")]) }\n";
    let run = "packages=(\n  fio\n  e2fsprogs util-linux\n)\nnbdkit\n";
    assert_eq!(found(&[(".ci/run", run), ("crates/cli/tests/a.rs", test)]), [""; 0]);
    let other = test.replace("e2fsprogs", "nbdkit");
    let files = [(".ci/run", run), ("crates/cli/tests/a.rs", other.as_str())];
    assert_eq!(found(&files), ["crates/cli/tests/a.rs:1 needs"]);
}
