//! `cargo xtask test`: every test there is, what was skipped, and a last line to be counted by.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use anyhow::{Context, Result};

use crate::check::cargo;
use crate::count::Count;

/// Builds and runs the tests of the checkout at `root`. True when none failed and, when `strict`,
/// none was skipped.
pub fn run(root: &Path, strict: bool) -> Result<bool> {
    let target = target_directory(root);
    fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
    let skips_file = target.join(format!("rampack-skips-{}", process::id()));
    fs::write(&skips_file, "").with_context(|| skips_file.display().to_string())?;

    let mut count = Count::default();
    let mut broken = Vec::new();

    let mut workspace = cargo(root);
    workspace.args(["test", "--workspace", "--no-fail-fast"]);
    runs(&mut workspace, &skips_file, strict, &mut count, &mut broken)?;

    for (package, test) in models(root)? {
        // Loom replaces the atomics of the whole crate, so its build shares nothing with the other.
        let mut model = cargo(root);
        model.args(["test", "--release", "--package", &package, "--test", &test]);
        model.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target.join("loom"));
        // Models are small worlds walked whole; optimised across crates they gain nothing more.
        model.env("CARGO_PROFILE_RELEASE_LTO", "off");
        runs(&mut model, &skips_file, strict, &mut count, &mut broken)?;
    }

    let text = fs::read_to_string(&skips_file).with_context(|| skips_file.display().to_string())?;
    let _ = fs::remove_file(&skips_file);
    let skips: BTreeSet<&str> = text.lines().collect();
    Ok(report(count, &broken, &skips, strict))
}

/// Prints the end of the run. True when it counts as a success.
fn report(count: Count, broken: &[String], skips: &BTreeSet<&str>, strict: bool) -> bool {
    println!();
    for skip in skips {
        println!("{skip}");
    }
    for name in &count.failures {
        println!("FAILED {name}");
    }
    for what in broken {
        println!("FAILED {what}");
    }
    if count.ignored > 0 {
        println!("{} tests are marked #[ignore] and did not run", count.ignored);
    }
    // A skipped test returns early, which its test program calls passed.
    let skipped = skips.len() as u64;
    let passed = count.passed.saturating_sub(skipped);
    let failed = count.failed + broken.len() as u64;
    let skipped = skipped + count.ignored;
    if strict && skipped > 0 {
        println!("--strict allows no skips");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    failed == 0 && !(strict && skipped > 0)
}

/// Runs one `cargo test`, shows and counts what it prints. A run that fails without a failed test
/// (it did not build, or a test program died) is one more failure, in `broken`.
fn runs(
    command: &mut Command,
    skips_file: &Path,
    strict: bool,
    count: &mut Count,
    broken: &mut Vec<String>,
) -> Result<()> {
    command.env("RAMPACK_SKIPS", skips_file);
    if strict {
        command.env("RAMPACK_STRICT", "1");
    } else {
        command.env_remove("RAMPACK_STRICT");
    }
    let words: Vec<String> =
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let shown = format!("cargo {}", words.join(" "));
    println!("$ {shown}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| shown.clone())?;
    let mut own = Count::default();
    let output = BufReader::new(child.stdout.take().context("no standard output")?);
    for line in output.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        own.line(&line);
        writeln!(io::stdout(), "{line}")?;
    }
    let status = child.wait()?;
    if !status.success() && own.failed == 0 {
        broken.push(format!("{shown}: {status}, though no test says it failed"));
    }
    count.passed += own.passed;
    count.failed += own.failed;
    count.ignored += own.ignored;
    count.failures.append(&mut own.failures);
    Ok(())
}

/// The loom models: `(package, test)` for each `crates/*/tests/loom*.rs`.
fn models(root: &Path) -> Result<Vec<(String, String)>> {
    let mut models = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let crate_directory = entry?.path();
        let Ok(tests) = fs::read_dir(crate_directory.join("tests")) else { continue };
        for test in tests {
            let name = test?.file_name().to_string_lossy().into_owned();
            if let Some(stem) = name.strip_suffix(".rs").filter(|stem| stem.starts_with("loom")) {
                models.push((package_name(&crate_directory)?, stem.to_string()));
            }
        }
    }
    models.sort();
    Ok(models)
}

fn package_name(crate_directory: &Path) -> Result<String> {
    let path = crate_directory.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Table = toml::from_str(&text).context(path.display().to_string())?;
    let name = manifest.get("package").and_then(|package| package.get("name"));
    let name = name.and_then(|name| name.as_str()).context("a package without a name")?;
    Ok(name.to_string())
}

fn target_directory(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root.join(directory),
        None => root.join("target"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::report;
    use crate::count::Count;

    #[test]
    fn strictness_and_failures_decide() {
        let count = || Count { passed: 3, ..Count::default() };
        let none = BTreeSet::new();
        let skips = BTreeSet::from(["SKIPPED a: needs fio (package fio)"]);
        assert!(report(count(), &[], &none, true));
        assert!(report(count(), &[], &skips, false));
        assert!(!report(count(), &[], &skips, true));
        assert!(!report(count(), &["cargo test: killed".to_string()], &none, false));
        assert!(!report(Count { failed: 1, ..count() }, &[], &none, false));
        assert!(!report(Count { ignored: 1, ..count() }, &[], &none, true));
    }
}
