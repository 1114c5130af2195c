//! Tests that are built in another way, because a checker looks on: loom, shuttle, and
//! AddressSanitizer. Each has a target directory of its own, as its build shares nothing with the
//! ordinary one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::source::GROUPS;

/// The only target for which the sanitizer is set up here.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";
/// What is run under the sanitizer: crates whose objects it is told of, and those tests of theirs
/// that do not count bytes of memory, of which it takes many itself.
const SANITIZED_CRATES: &[&str] = &[
    "rampack-pagealloc",
    "rampack-zsmalloc",
    "rampack-zram",
    "rampack-zswap",
    "rampack-sim",
    "rampack-designs",
];
const SANITIZED_TESTS: &[&str] = &[
    "asan",
    "blocks",
    "pool",
    "post",
    "schemes",
    "slots",
    "suite",
    "swap",
    "swap_device",
    "sync_points",
    "zones",
];

/// A `cargo test` for each `tests/loom*.rs` and `shuttle*.rs` of a crate.
pub fn models(root: &Path, target: &Path) -> Result<Vec<Command>> {
    let mut models = Vec::new();
    let mut crates = Vec::new();
    for group in GROUPS {
        for entry in fs::read_dir(root.join(group))? {
            crates.push(entry?.path());
        }
    }
    for crate_directory in crates {
        let Ok(tests) = fs::read_dir(crate_directory.join("tests")) else { continue };
        for test in tests {
            let name = test?.file_name().to_string_lossy().into_owned();
            let Some(stem) = name.strip_suffix(".rs") else { continue };
            if let Some(checker) = checker_of(stem) {
                models.push((checker, package_name(&crate_directory)?, stem.to_string()));
            }
        }
    }
    models.sort();
    let command = |(checker, package, test): (&str, String, String)| {
        let mut model = cargo(root);
        model.args(["test", "--release", "--package", &package, "--test", &test]);
        model.env("RUSTFLAGS", format!("--cfg {checker}"));
        model.env("CARGO_TARGET_DIR", target.join(checker));
        // Models are small models; optimised across crates they gain nothing more.
        model.env("CARGO_PROFILE_RELEASE_LTO", "off");
        if checker == "shuttle" {
            // It runs the product itself, which may as well look at itself.
            model.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        }
        model
    };
    Ok(models.into_iter().map(command).collect())
}

/// The checker that a test of this name is for.
fn checker_of(test: &str) -> Option<&'static str> {
    ["loom", "shuttle"].into_iter().find(|checker| test.starts_with(checker))
}

fn package_name(crate_directory: &Path) -> Result<String> {
    let path = crate_directory.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = toml::from_str(&text).context(path.display().to_string())?;
    let name = manifest.get("package").and_then(|package| package.get("name"));
    let name = name.and_then(|name| name.as_str()).context("a package without a name")?;
    Ok(name.to_string())
}

/// The tests of concurrency under AddressSanitizer, or why they cannot be run.
pub fn sanitized(root: &Path, target: &Path) -> Result<std::result::Result<Command, String>> {
    let version = cargo(root).args(["--version", "--verbose"]).output().context("cargo")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("unknown");
    if host != SANITIZED_TARGET {
        let reason = format!("address_sanitizer: needs {SANITIZED_TARGET}, and this is {host}");
        return Ok(Err(reason));
    }
    let mut suite = cargo(root);
    suite.args(["test", "--no-fail-fast", "--target", SANITIZED_TARGET, "--lib"]);
    suite.args(SANITIZED_CRATES.iter().flat_map(|package| ["--package", package]));
    suite.args(SANITIZED_TESTS.iter().flat_map(|test| ["--test", test]));
    // The sanitizer's runtime comes with every toolchain, the flag for it only with a nightly one,
    // or with this permission. With a target named, build scripts and macros go without both.
    suite.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address --cfg asan");
    suite.env("CARGO_TARGET_DIR", target.join("asan"));
    // Tests of what must not be end their processes; memory that is still there then is no leak.
    // The C codecs are built with the sanitizer of the C compiler, which calls tables that are
    // private to several files of libdeflate, under one name, a contradiction.
    suite.env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0");
    Ok(Ok(suite))
}

#[cfg(test)]
mod tests {
    use super::checker_of;

    #[test]
    fn names_tell_the_checker() {
        assert_eq!(checker_of("loom"), Some("loom"));
        assert_eq!(checker_of("loom_slots"), Some("loom"));
        assert_eq!(checker_of("shuttle"), Some("shuttle"));
        assert_eq!(checker_of("schemes"), None);
    }
}
