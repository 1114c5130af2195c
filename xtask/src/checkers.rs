//! The tests that run under a checker: loom, shuttle or AddressSanitizer, or that end a process at
//! each of its steps. Each checker has its own target directory, because its build shares nothing
//! with the ordinary build.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::cargo;
use crate::source::GROUPS;

/// The only target with a setup of the sanitizer here.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";
/// The C code of codecs gets the sanitizer, too. GCC 12 makes a constant table of a function of
/// zstd a global, and still marks it as out of scope: the next call would be a fault.
pub const SANITIZED_C: &str = "-fno-sanitize-address-use-after-scope";
/// The crates that tell the sanitizer of their objects. Their tests run under it, except those that
/// count bytes of memory, because the sanitizer itself takes much memory.
const SANITIZED_CRATES: &[&str] =
    &["rampack-pagealloc", "rampack-zsmalloc", "rampack-zram", "rampack-zswap", "rampack-sim"];
const SANITIZED_TESTS: &[&str] =
    &["asan", "blocks", "pool", "post", "slots", "suite", "swap", "swap_device", "sync_points"];
/// More where there is time: the designs that the product does not use.
const LONG_SANITIZED: (&str, &[&str]) = ("rampack-designs", &["schemes", "zones"]);

/// The test that needs the whole program built once more; it runs where there is time.
const LONG: (&str, &str) = ("rampack-cli", "killed");

/// Makes a `cargo test` command for each `tests/loom*.rs`, `shuttle*.rs` and `killed*.rs` of a
/// crate.
pub fn models(root: &Path, target: &Path, long: bool) -> Result<Vec<Command>> {
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
    models.retain(|(_, package, test)| long || (package.as_str(), test.as_str()) != LONG);
    models.sort();
    let command = |(checker, package, test): (&str, String, String)| {
        let mut model = cargo(root);
        model.args(["test", "--release", "--package", &package, "--test", &test]);
        model.env("RUSTFLAGS", format!("--cfg {checker}"));
        model.env("CARGO_TARGET_DIR", target.join(checker));
        // Models are small: most of their time is their build's.
        model.env("CARGO_PROFILE_RELEASE_LTO", "off");
        model.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
        if checker != "loom" {
            // These run the product itself, so the product's own assertions are on.
            model.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        }
        model
    };
    Ok(models.into_iter().map(command).collect())
}

/// The checker of a test with this name.
fn checker_of(test: &str) -> Option<&'static str> {
    ["loom", "shuttle", "killed"].into_iter().find(|checker| test.starts_with(checker))
}

fn package_name(crate_directory: &Path) -> Result<String> {
    let path = crate_directory.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = toml::from_str(&text).context(path.display().to_string())?;
    let name = manifest.get("package").and_then(|package| package.get("name"));
    let name = name.and_then(|name| name.as_str()).context("a package without a name")?;
    Ok(name.to_string())
}

/// The concurrency tests under AddressSanitizer, or the reason why they cannot run.
pub fn sanitized(
    root: &Path,
    target: &Path,
    long: bool,
) -> Result<std::result::Result<Command, String>> {
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
    if long {
        suite.args(["--package", LONG_SANITIZED.0]);
        suite.args(LONG_SANITIZED.1.iter().flat_map(|test| ["--test", test]));
    }
    // Every toolchain has the sanitizer's runtime. Its flag needs a nightly toolchain or this
    // permission. With an explicit target, build scripts and macros are built without the flags.
    suite.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address --cfg asan");
    suite.env("CFLAGS", SANITIZED_C);
    suite.env("CARGO_TARGET_DIR", target.join("asan"));
    // Some tests end their process on purpose, and their remaining memory is no leak. The C
    // compiler's sanitizer, with which the C codecs are built, reports private tables of several
    // libdeflate files with one name as an error.
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
        assert_eq!(checker_of("killed"), Some("killed"));
        assert_eq!(checker_of("schemes"), None);
    }
}
