//! The tests that run under a checker: loom, shuttle or AddressSanitizer, or that end a process at
//! each of its steps. Each checker has its own target directory, because its build shares nothing
//! with the ordinary build.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use fs_err as fs;

use crate::cargo::{cargo, workspace_of};
use crate::source::GROUPS;

/// The only target with a setup of the sanitizer here.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";
/// The C code of codecs gets the sanitizer, too. GCC 12 makes a constant table of a function of
/// zstd a global, and still marks it as out of scope: the next call would be a fault.
pub const SANITIZED_C: &str = "-fno-sanitize-address-use-after-scope";
/// The crates that tell the sanitizer of their objects. Their tests run under it, except those that
/// count bytes of memory, because the sanitizer itself takes much memory.
const SANITIZED_CRATES: &[&str] = &[
    "rampack-pagealloc",
    "rampack-zsmalloc",
    "rampack-pagelog",
    "rampack-zram",
    "rampack-zswap",
    "rampack-values",
    "rampack-sim",
];
const SANITIZED_TESTS: &[&str] = &[
    "asan",
    "blocks",
    "model",
    "pool",
    "post",
    "slots",
    "suite",
    "swap",
    "swap_device",
    "sync_points",
    "threads",
];
/// Those of the designs that the product does not use run where there is time: disks whose readers
/// hold no lock, and all schemes, slots and zones.
const SANITIZED_DESIGNS: &[&str] = &[
    "--package",
    "rampack-designs",
    "--test",
    "asan",
    "--test",
    "schemes",
    "--test",
    "slots",
    "--test",
    "zones",
];

/// The test that needs the whole program built once more; it runs where there is time.
const LONG: (&str, &str) = ("rampack-cli", "killed");

/// How a test is built, and so what it can find.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// As `cargo test` does.
    Plain,
    Loom,
    Shuttle,
    /// The process can end at each of its steps.
    Killed,
    /// Under AddressSanitizer.
    Asan,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Plain, Kind::Loom, Kind::Shuttle, Kind::Killed, Kind::Asan];

    /// The kind of this name.
    pub fn of(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Loom => "loom",
            Kind::Shuttle => "shuttle",
            Kind::Killed => "killed",
            Kind::Asan => "asan",
        }
    }

    /// Has a `cargo test` build tests of this kind, in a directory below `target`. The words that
    /// choose the tests follow.
    pub fn set(self, command: &mut Command, target: &Path) {
        command.env("CARGO_TARGET_DIR", target.join(self.name()));
        match self {
            Kind::Plain => {}
            Kind::Loom | Kind::Shuttle | Kind::Killed => {
                command.env("RUSTFLAGS", format!("--cfg {}", self.name()));
            }
            Kind::Asan => {
                // With an explicit target, build scripts and macros are built without the flags.
                command.args(["--target", SANITIZED_TARGET]);
                // Every toolchain has the sanitizer's runtime. Its flag needs a nightly toolchain
                // or this permission.
                command.env("RUSTC_BOOTSTRAP", "1");
                command.env("RUSTFLAGS", "-Zsanitizer=address --cfg asan");
                command.env("CFLAGS", SANITIZED_C);
                // Some tests end their process on purpose, and their remaining memory is no leak.
                // The C compiler's sanitizer, with which the C codecs are built, reports private
                // tables of several libdeflate files with one name as an error.
                command.env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0");
            }
        }
    }
}

/// Has a `cargo test` build as for a release, where it takes many steps. Of killed most is the
/// system's time: it is built as for tests.
pub fn release(kind: Kind, command: &mut Command) {
    if !matches!(kind, Kind::Loom | Kind::Shuttle) {
        return;
    }
    command.arg("--release");
    // Models are small: most of their time is their build's.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    command.env("CARGO_PROFILE_RELEASE_STRIP", "none");
    if kind == Kind::Shuttle {
        // It runs the product itself, so the product's own assertions are on.
        command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    }
}

/// A checker, the directory of the crate, the name of the crate, and that of its test.
type Model = (Kind, &'static str, String, String);

/// Makes `cargo test` commands for all `tests/loom*.rs`, `shuttle*.rs` and `killed*.rs` of the
/// crates. Those of designs that the product does not use run where there is time.
pub fn models(root: &Path, target: &Path, long: bool) -> Result<Vec<Command>> {
    let mut models = Vec::new();
    let mut crates = Vec::new();
    for group in GROUPS.into_iter().filter(|&group| long || group != "research") {
        for entry in fs::read_dir(root.join(group))? {
            let directory = entry?.path();
            if directory.is_dir() {
                crates.push((group, directory));
            }
        }
    }
    for (group, crate_directory) in crates {
        let Ok(tests) = fs::read_dir(crate_directory.join("tests")) else { continue };
        for test in tests {
            let name = test?.file_name().to_string_lossy().into_owned();
            let Some(stem) = name.strip_suffix(".rs") else { continue };
            if let Some(checker) = checker_of(stem) {
                let package = package_name(&crate_directory)?;
                models.push((checker, group, package, stem.to_string()));
            }
        }
    }
    models.retain(|(_, _, package, test)| long || (package.as_str(), test.as_str()) != LONG);
    models.sort();
    // One build for all of a checker and a workspace.
    let mut commands: Vec<Command> = Vec::new();
    let same = |a: &Model, b: &Model| (a.0, a.1) == (b.0, b.1);
    for models in models.chunk_by(same) {
        let (checker, group, ..) = models[0];
        let mut command = cargo(root);
        command.arg("test").args(workspace_of(group)).arg("--no-fail-fast");
        checker.set(&mut command, target);
        release(checker, &mut command);
        for (.., package, test) in models {
            command.args(["--package", package, "--test", test]);
        }
        commands.push(command);
    }
    Ok(commands)
}

/// The checker of a test with this name.
fn checker_of(test: &str) -> Option<Kind> {
    let checkers = [Kind::Loom, Kind::Shuttle, Kind::Killed];
    checkers.into_iter().find(|checker| test.starts_with(checker.name()))
}

fn package_name(crate_directory: &Path) -> Result<String> {
    let path = crate_directory.join("Cargo.toml");
    let text = fs::read_to_string(&path)?;
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
) -> Result<std::result::Result<Vec<Command>, String>> {
    let version = cargo(root).args(["--version", "--verbose"]).output().context("cargo")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("unknown");
    if host != SANITIZED_TARGET {
        let reason = format!("address_sanitizer: needs {SANITIZED_TARGET}, and this is {host}");
        return Ok(Err(reason));
    }
    let mut product = sanitizer(root, target, "crates");
    product.args(SANITIZED_CRATES.iter().flat_map(|package| ["--package", package]));
    product.args(SANITIZED_TESTS.iter().flat_map(|test| ["--test", test]));
    let mut suites = vec![product];
    if long {
        let mut designs = sanitizer(root, target, "research");
        designs.args(SANITIZED_DESIGNS);
        suites.push(designs);
    }
    Ok(Ok(suites))
}

/// A run of tests of a workspace under AddressSanitizer.
fn sanitizer(root: &Path, target: &Path, group: &str) -> Command {
    let mut suite = cargo(root);
    suite.arg("test").args(workspace_of(group));
    Kind::Asan.set(&mut suite, target);
    suite.args(["--no-fail-fast", "--lib"]);
    suite
}

#[cfg(test)]
mod tests {
    use super::{Kind, checker_of};

    #[test]
    fn names_tell_the_checker() {
        assert_eq!(checker_of("loom"), Some(Kind::Loom));
        assert_eq!(checker_of("loom_slots"), Some(Kind::Loom));
        assert_eq!(checker_of("shuttle"), Some(Kind::Shuttle));
        assert_eq!(checker_of("killed"), Some(Kind::Killed));
        assert_eq!(checker_of("schemes"), None);
    }
}
