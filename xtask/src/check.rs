//! `cargo xtask check`: everything that is not a test.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{licences, rules};

/// Runs each check, all of them even when one fails. True when all pass.
pub fn run(root: &Path) -> Result<bool> {
    let mut failed = Vec::new();
    let mut step = |name: &'static str, outcome: Result<bool>| -> Result<()> {
        if !outcome? {
            failed.push(name);
        }
        Ok(())
    };
    step("fmt", passes(cargo(root).args(["fmt", "--all", "--check"])))?;
    step("rules", rules::run(root))?;
    step("licences", licences::run(root))?;
    let mut clippy = cargo(root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    step("clippy", passes(&mut clippy))?;
    let mut fuzz = cargo(root);
    fuzz.args(["check", "--manifest-path", "fuzz/Cargo.toml", "--bins"]);
    step("fuzz targets", passes(&mut fuzz))?;
    match failed.len() {
        0 => println!("check: all good"),
        _ => println!("check: failed: {}", failed.join(", ")),
    }
    Ok(failed.is_empty())
}

/// The cargo that runs us, at the top of the checkout.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

fn passes(command: &mut Command) -> Result<bool> {
    let words: Vec<String> =
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    println!("$ cargo {}", words.join(" "));
    let status = command.stdin(Stdio::null()).status();
    Ok(status.with_context(|| format!("{command:?}"))?.success())
}
