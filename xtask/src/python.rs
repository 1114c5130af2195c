//! `cargo xtask python`: the wheel for Python, built and tested in an environment of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::check;

/// What the tests need from pip.
const PACKAGES: &[&str] = &[
    "maturin>=1.9.4,<2",
    "mypy",
    "pytest",
    "numpy",
    "blosc2",
    "diskcache",
    "pandas",
    "zarr>=3",
    "zstandard",
];

/// What this machine lacks to make environments, with the package that brings it.
pub fn missing() -> Option<&'static str> {
    let has = |module: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", &format!("import {module}")]).stdin(Stdio::null());
        python.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    match (has("sys"), has("venv, ensurepip")) {
        (false, _) => Some("python3 (package python3)"),
        (_, false) => Some("python3 -m venv (package python3-venv)"),
        _ => None,
    }
}

/// Builds and tests the wheel. True if all tests pass.
///
/// # Errors
/// There is no python3 with venv, pip cannot fetch what the tests need, the wheel does not build.
pub fn run(root: &Path, target: &Path) -> Result<bool> {
    if let Some(missing) = missing() {
        anyhow::bail!("needs {missing}");
    }
    let mut all_good = check::of_workspace(root, "python")?;
    let place = Place { python: root.join("python"), venv: target.join("python") };
    let _ = fs::remove_dir_all(&place.venv);
    place.must(Command::new("python3").args(["-m", "venv"]).arg(&place.venv))?;
    place.must(place.tool("pip").args(["install", "--quiet"]).args(PACKAGES))?;
    let wheels = place.venv.join("wheels");
    // With the profile of tests, whose assertions are on.
    let mut build = place.tool("maturin");
    place.must(build.args(["build", "--quiet", "--profile", "dev", "--out"]).arg(&wheels))?;
    let mut install = place.tool("pip");
    install.args(["install", "--quiet", "--no-deps"]);
    for wheel in fs::read_dir(&wheels)? {
        install.arg(wheel?.path());
    }
    place.must(&mut install)?;
    // Not in its directory: what is tested is the wheel, not the sources.
    let tests = ["-p", "no:cacheprovider", "--quiet"];
    let mut pytest = place.tool("pytest");
    pytest.current_dir(&place.venv).args(tests).arg(place.python.join("tests"));
    all_good &= place.passes(&mut pytest)?;
    let mut mypy = place.tool("mypy");
    mypy.args(["--cache-dir"]).arg(place.venv.join("mypy"));
    all_good &= place.passes(mypy.args(["--strict", "package/rampack", "tests"]))?;
    Ok(all_good)
}

/// Where the sources and the environment are.
struct Place {
    python: PathBuf,
    venv: PathBuf,
}

impl Place {
    /// A program of the environment, in the directory of the sources.
    fn tool(&self, name: &str) -> Command {
        let mut tool = Command::new(self.venv.join("bin").join(name));
        tool.current_dir(&self.python).env("PYTHONDONTWRITEBYTECODE", "1");
        // maturin looks for the interpreter by it.
        tool.env("VIRTUAL_ENV", &self.venv).env_remove("PYTHONPATH");
        tool
    }

    fn passes(&self, command: &mut Command) -> Result<bool> {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        println!("$ {} {}", command.get_program().to_string_lossy(), words.join(" "));
        let status = command.stdin(Stdio::null()).status();
        Ok(status.with_context(|| format!("{command:?}"))?.success())
    }

    fn must(&self, command: &mut Command) -> Result<()> {
        ensure!(self.passes(command)?, "{command:?} failed");
        Ok(())
    }
}
