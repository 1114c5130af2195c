//! The cargo that chores run, and the workspaces of the checkout.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// A command of the cargo that runs this program, at the top of the checkout.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(program());
    command.current_dir(root);
    command
}

/// The same, ended with all that it started after so many seconds. Its status is 124 then.
pub fn cargo_within(seconds: u64, root: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=10").arg(seconds.to_string()).arg(program()).current_dir(root);
    command
}

fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The workspace of the experiments.
const RESEARCH: &str = "research/Cargo.toml";
/// That of the wheel for Python.
const PYTHON: &str = "python/Cargo.toml";

/// The manifest of the workspace of the crates in a directory, as options of a cargo command.
pub fn workspace_of(group: &str) -> &'static [&'static str] {
    match group {
        "research" => &["--manifest-path", RESEARCH],
        "python" => &["--manifest-path", PYTHON],
        _ => &[],
    }
}
