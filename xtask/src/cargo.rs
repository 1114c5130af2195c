//! The cargo that chores run.

use std::env;
use std::path::Path;
use std::process::Command;

/// A command of the cargo that runs this program, at the top of the checkout.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}
