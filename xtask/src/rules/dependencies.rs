//! The rules about dependencies: the layers of the workspace, and the users of foreign crates.

use toml::{Table, Value};

use super::Finding;
use crate::source::GROUPS;
use crate::tree::{File, Tree};

/// Every crate of the workspace and the crates of the workspace it may depend on, bottom up.
/// Names are directory names. docs/internals/architecture.md says why.
const LAYERS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("sync", &["units"]),
    ("control", &["units"]),
    ("block", &["units", "sync"]),
    ("pagealloc", &["units", "sync"]),
    ("zsmalloc", &["units", "sync", "pagealloc"]),
    ("zcomp", &["units", "sync"]),
    ("objects", &["units", "sync", "control", "pagealloc", "zsmalloc", "zcomp"]),
    ("tiers", &[]),
    ("segments", &[]),
    ("pagelog", &["units", "sync", "block", "pagealloc", "zcomp", "segments"]),
    (
        "zram",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zsmalloc",
            "zcomp",
            "objects",
            "tiers",
            "pagelog",
        ],
    ),
    (
        "zswap",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zsmalloc",
            "zcomp",
            "objects",
            "tiers",
        ],
    ),
    ("values", &["units", "sync", "pagealloc", "zsmalloc", "zcomp"]),
    ("host", &["units", "sync", "pagealloc"]),
    ("backing", &["units", "sync", "control", "block", "host"]),
    ("kept", &["host"]),
    ("seal", &["units", "sync", "block", "pagealloc", "host"]),
    ("remote", &["units", "sync", "control", "block", "tiers", "host"]),
    (
        "store",
        &["units", "control", "block", "pagealloc", "zcomp", "objects", "pagelog", "host", "seal"],
    ),
    ("nbd", &["units", "sync", "block", "host"]),
    ("fuse", &["units", "sync", "control", "block", "host"]),
    ("ublk", &["units", "sync", "block", "host"]),
    ("vhost", &["units", "sync", "block", "host"]),
    (
        "machine",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zcomp",
            "zram",
            "zswap",
            "host",
            "backing",
            "remote",
            "store",
        ],
    ),
    (
        "rampack",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zcomp",
            "zram",
            "zswap",
            "host",
            "backing",
            "machine",
            "nbd",
            "values",
        ],
    ),
    ("capi", &["control", "rampack"]),
    // Its tests compare it with a disk.
    ("estimate", &["units", "zsmalloc", "zcomp", "tiers", "host"]),
    (
        "service",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zcomp",
            "pagelog",
            "zram",
            "zswap",
            "host",
            "backing",
            "kept",
            "store",
            "machine",
            "nbd",
            "fuse",
            "ublk",
            "vhost",
        ],
    ),
    (
        "cli",
        &[
            "units", "sync", "control", "zram", "zswap", "host", "seal", "kept", "store",
            "machine", "nbd", "estimate", "service",
        ],
    ),
    (
        "designs",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zcomp",
            "pagelog",
            "zram",
            "zswap",
            "host",
        ],
    ),
    (
        "lab",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zsmalloc",
            "zcomp",
            "zram",
            "zswap",
            "host",
            "backing",
            "fuse",
            "store",
            "machine",
            "rampack",
            "designs",
        ],
    ),
    (
        "sim",
        &[
            "units",
            "sync",
            "control",
            "block",
            "pagealloc",
            "zsmalloc",
            "zcomp",
            "tiers",
            "pagelog",
            "zram",
            "zswap",
            "values",
            "host",
            "kept",
            "testkit",
        ],
    ),
    (
        "soak",
        &[
            "units", "sync", "control", "block", "zcomp", "zram", "zswap", "host", "backing",
            "nbd", "fuse", "store", "machine", "testkit",
        ],
    ),
    ("testkit", &[]),
    ("guestkit", &["sync"]),
    (
        "fuzzing",
        &[
            "units",
            "control",
            "block",
            "pagealloc",
            "zsmalloc",
            "zcomp",
            "segments",
            "zram",
            "zswap",
            "values",
            "seal",
            "remote",
            "kept",
            "nbd",
            "vhost",
            "fuse",
            "service",
            "host",
            "sim",
        ],
    ),
    ("xtask", &[]),
];

/// The crates that tests may use in addition. Nothing outside `research/` may use `designs`.
const IN_TESTS: &[&str] = &[
    "backing",
    "capi",
    "cli",
    "fuse",
    "testkit",
    "sim",
    "host",
    "kept",
    "machine",
    "nbd",
    "pagealloc",
    "pagelog",
    "rampack",
    "store",
    "zcomp",
    "zram",
    "zsmalloc",
];

/// Foreign crates, the crates whose product code may use them, and those whose tests may too.
/// `*` stands for every crate.
const FOREIGN: &[(&str, &[&str], &[&str])] = &[
    ("anyhow", &["lab", "soak", "xtask"], &[]),
    ("atomic-wait", &["sync"], &[]),
    ("clap", &["cli", "lab", "soak", "xtask"], &[]),
    ("clap_complete", &[], &["cli"]),
    ("clap_mangen", &[], &["cli"]),
    ("comfy-table", &["lab"], &[]),
    ("crc32fast", &["kept"], &[]),
    ("crossbeam-utils", &["sync"], &[]),
    ("divan", &[], &["nbd", "pagealloc", "rampack", "zsmalloc"]),
    ("elf", &["estimate"], &[]),
    (
        "fastrand",
        &[
            "block", "service", "cli", "estimate", "fuzzing", "guestkit", "lab", "remote", "soak",
            "testkit",
        ],
        &["*"],
    ),
    ("foyer-memory", &["lab"], &[]),
    ("fs-err", &["xtask"], &[]),
    ("fuser", &["fuse"], &[]),
    ("hdrhistogram", &["lab"], &[]),
    ("httparse", &["cli"], &[]),
    ("hyper-util", &[], &["remote"]),
    ("indicatif", &["cli", "lab"], &[]),
    ("io-uring", &["backing", "fuse", "ublk"], &[]),
    // The system is `host`: the other crates of the product call its safe functions, and those of
    // rustix.
    ("libc", &["host", "guestkit"], &["*"]),
    ("libdeflate-sys", &["zcomp"], &[]),
    ("loom", &["sync"], &["zram", "zswap", "zsmalloc", "zcomp", "pagealloc", "designs"]),
    ("lz4-sys", &["zcomp"], &[]),
    ("lz4_flex", &["zcomp"], &["fuzzing"]),
    ("lzokay", &[], &["zcomp", "fuzzing"]),
    ("maud", &["lab"], &[]),
    ("memmap2", &["lab"], &[]),
    ("miniz_oxide", &[], &["zcomp", "fuzzing"]),
    ("moka", &["lab"], &[]),
    // `fuser` brings it; it has the symbols of all errors.
    ("nix", &["service", "lab"], &[]),
    ("opendal", &["remote"], &[]),
    ("opendal-http-transport-reqwest", &["remote"], &[]),
    ("plotters", &["estimate", "lab"], &[]),
    ("procfs", &["estimate", "lab"], &[]),
    ("prometheus", &["cli"], &[]),
    ("proptest", &[], &["*"]),
    ("ratatui", &["cli"], &[]),
    ("rcgen", &[], &["cli", "nbd"]),
    ("redis", &["lab"], &[]),
    ("reqwest", &["remote"], &[]),
    ("ring", &["seal"], &[]),
    ("rustls", &["nbd", "remote"], &[]),
    (
        "rustix",
        &[
            "backing", "cli", "estimate", "fuse", "host", "kept", "nbd", "service", "sim", "soak",
            "ublk", "vhost",
        ],
        &[],
    ),
    ("ruzstd", &[], &["zcomp", "fuzzing"]),
    ("s3s", &[], &["remote"]),
    ("s3s-fs", &[], &["remote"]),
    ("seccompiler", &["host"], &[]),
    ("serde", &["service", "cli", "estimate", "kept", "lab", "soak", "xtask"], &[]),
    ("serde_json", &["service", "cli", "kept", "lab", "soak", "xtask"], &["*"]),
    ("sha2", &["lab"], &["*"]),
    ("shuttle", &["sync"], &["sim", "designs"]),
    ("signal-hook", &["service", "lab", "soak"], &[]),
    ("tempfile", &["lab", "soak"], &["*"]),
    ("thiserror", &["rampack"], &[]),
    ("tokio", &["remote"], &[]),
    ("toml", &["xtask"], &[]),
    ("toml_edit", &["cli"], &[]),
    (
        "tracing",
        &["host", "backing", "remote", "nbd", "fuse", "vhost", "service", "cli", "lab"],
        &[],
    ),
    ("tracing-subscriber", &["cli", "lab"], &[]),
    ("twox-hash", &["pagelog", "remote", "values", "zram"], &[]),
    ("vhost-protocol", &["vhost"], &[]),
    ("virtio-queue", &["vhost"], &[]),
    ("vm-memory", &["vhost"], &[]),
    ("vmm-sys-util", &[], &["vhost"]),
    ("zstd-safe", &["zcomp"], &[]),
];

const RULE: &str = "dependencies";

/// The manifest of the workspace of [`RESEARCH`].
const RESEARCH_MANIFEST: &str = "research/Cargo.toml";
/// The crates that repeat and extend experiments.
const RESEARCH: &[&str] = &["designs", "lab"];
/// The crates that only tests need.
const TESTING: &[&str] = &["sim", "soak", "testkit", "fuzzing", "guestkit"];

/// Compares the manifest of each crate with the tables.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let name = match file.path.split('/').collect::<Vec<_>>()[..] {
            // The program of somebody else.
            ["testing", "outside", _] => continue,
            [group, name, "Cargo.toml"] if GROUPS.contains(&group) => {
                check_place(group, name, file, &mut findings);
                name
            }
            ["xtask", "Cargo.toml"] => "xtask",
            _ => continue,
        };
        check_manifest(name, file, &mut findings);
    }
    check_research(tree, &mut findings);
    findings
}

/// The workspace of `research/` has the lints and profiles of the product's, and takes what both
/// want in the same way: else its figures would be those of another program.
fn check_research(tree: &Tree, findings: &mut Vec<Finding>) {
    let manifest = |path: &str| -> Option<Table> {
        let file = tree.files.iter().find(|file| file.path == path)?;
        toml::from_str(file.text()?).ok()
    };
    let (Some(product), Some(research)) = (manifest("Cargo.toml"), manifest(RESEARCH_MANIFEST))
    else {
        return;
    };
    let path = RESEARCH_MANIFEST.to_string();
    let mut find = |message| {
        findings.push(Finding { path: path.clone(), line: 0, rule: RULE, message });
    };
    let part = |manifest: &Table, name: &str| -> Table {
        let part = manifest.get("workspace").and_then(|it| it.get(name));
        part.and_then(Value::as_table).cloned().unwrap_or_default()
    };
    // What is made small is not what is measured, and the lab lacks some of it.
    let profiles = |manifest: &Table| {
        let mut profiles = manifest.get("profile").cloned();
        let release = profiles.as_mut().and_then(|it| it.get_mut("release")?.as_table_mut());
        release.map(|it| it.remove("package"));
        profiles
    };
    if profiles(&product) != profiles(&research) {
        find("its profiles are not those of the root Cargo.toml".to_string());
    }
    for name in ["package", "lints"] {
        if part(&product, name) != part(&research, name) {
            find(format!("[workspace.{name}] is not that of the root Cargo.toml"));
        }
    }
    let ours = part(&product, "dependencies");
    for (name, value) in part(&research, "dependencies") {
        let here = value.get("path").is_some();
        if !here && ours.get(&name).is_some_and(|other| *other != value) {
            find(format!("{name} is taken in another way than by the root Cargo.toml"));
        }
    }
}

/// Checks that `crates/` has exactly the crates that run in production.
fn check_place(group: &str, name: &str, file: &File, findings: &mut Vec<Finding>) {
    let right = match name {
        _ if RESEARCH.contains(&name) => "research",
        _ if TESTING.contains(&name) => "testing",
        _ => "crates",
    };
    if group != right {
        let message = format!("{name} belongs in {right}/");
        findings.push(Finding { path: file.path.clone(), line: 0, rule: RULE, message });
    }
}

fn check_manifest(name: &str, file: &File, findings: &mut Vec<Finding>) {
    let mut find = |line, message| {
        findings.push(Finding { path: file.path.clone(), line, rule: RULE, message });
    };
    let text = file.text().unwrap_or_default();
    let manifest: Table = match toml::from_str(text) {
        Ok(manifest) => manifest,
        Err(error) => return find(0, format!("not a manifest: {error}")),
    };
    let Some((_, may)) = LAYERS.iter().find(|(crate_name, _)| *crate_name == name) else {
        let message = format!("{name} has no place in the layers: add it to LAYERS in {}", file!());
        return find(0, message);
    };
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints != Some(&Value::Boolean(true)) {
        find(0, "takes no part in the workspace's lints: add `[lints] workspace = true`".into());
    }
    for (section, tests, dependency, value) in dependencies(&manifest) {
        let line = line_of(text, &section, &dependency);
        // With a version, what tests take of a crate above could not be published.
        let by_path = tests && value.get("path").is_some();
        if !by_path && value.get("workspace") != Some(&Value::Boolean(true)) {
            let message = format!(
                "{dependency} is not taken from the workspace: list it in the workspace's \
                 Cargo.toml and write `{dependency}.workspace = true`"
            );
            find(line, message);
        }
        // Tests take their own crate with more features.
        if tests && value.get("path").and_then(Value::as_str) == Some(".") {
            continue;
        }
        let has = |list: &[&str], name: &str| list.contains(&name) || list.contains(&"*");
        let internal = LAYERS.iter().any(|(crate_name, _)| *crate_name == dependency);
        if internal {
            if may.contains(&dependency.as_str()) || (tests && has(IN_TESTS, &dependency)) {
                continue;
            }
            let allowed = if may.is_empty() { "nothing".to_string() } else { may.join(", ") };
            let message = format!(
                "{name} may not depend on {dependency}; it may depend on {allowed}. Move the code \
                 to the crate that may, or pass the value in from above"
            );
            find(line, message);
            continue;
        }
        match FOREIGN.iter().find(|(foreign, ..)| *foreign == dependency) {
            None => {
                let message = format!(
                    "the foreign crate {dependency} is new here: say who may use it in FOREIGN \
                     in {}",
                    file!()
                );
                find(line, message);
            }
            Some((_, product, test)) => {
                if has(product, name) || (tests && has(test, name)) {
                    continue;
                }
                let message = format!(
                    "{name} may not use {dependency}; it is let into: {}; into tests of: {}",
                    list(product),
                    list(test)
                );
                find(line, message);
            }
        }
    }
}

fn list(names: &[&str]) -> String {
    match names {
        [] => "none".to_string(),
        ["*"] => "every crate".to_string(),
        names => names.join(", "),
    }
}

/// Each dependency of every target: its section, whether it is for tests only, its name and its
/// value.
fn dependencies(manifest: &Table) -> Vec<(String, bool, String, Value)> {
    let mut found = Vec::new();
    let mut take = |prefix: &str, table: &Table| {
        for (kind, tests) in
            [("dependencies", false), ("dev-dependencies", true), ("build-dependencies", false)]
        {
            let entries = table.get(kind).and_then(Value::as_table).into_iter().flatten();
            for (name, value) in entries {
                found.push((format!("{prefix}{kind}"), tests, name.clone(), value.clone()));
            }
        }
    };
    take("", manifest);
    for (target, table) in manifest.get("target").and_then(Value::as_table).into_iter().flatten() {
        if let Some(table) = table.as_table() {
            take(&format!("target.'{target}'."), table);
        }
    }
    found
}

/// The line of `name` in `[section]`. If `name` is written in another way: the line of the section,
/// or zero.
fn line_of(text: &str, section: &str, name: &str) -> usize {
    let mut inside = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with('[') {
            inside = if line.contains(section) { number } else { 0 };
        } else if inside != 0
            && line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        {
            return number;
        }
    }
    inside
}
