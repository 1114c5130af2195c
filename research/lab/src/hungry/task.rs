//! The task of a program of [`hungry`](super), and how it runs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::pressure::{Ended, Measured, SwapGroup};
use crate::programs::{Running, last_words};

/// The task of a program.
pub struct Task<'a> {
    /// Its executable file.
    pub program: PathBuf,
    /// A directory for its files.
    pub directory: &'a Path,
    /// Bytes of data.
    pub bytes: u64,
    /// The seed of the contents.
    pub seed: u64,
    /// The time after which it is killed.
    pub timeout: Duration,
}

/// The work of a program, or the reason of its failure.
pub type Verdict = Result<String, String>;

/// Runs a command in the group until it ends, and returns what it wrote to its standard error.
///
/// # Errors
/// It cannot start, or the group or the swap it needs is gone.
pub fn in_group(
    command: &mut Command,
    name: &str,
    swap_group: &mut SwapGroup,
) -> Result<(Verdict, Measured)> {
    let log = tempfile::tempfile().context("cannot make a temporary file")?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    // A process group of its own: Ctrl-C reaches only us, and we take the swap away in order.
    command.process_group(0);
    swap_group.take(command)?;
    swap_group.begin()?;
    let mut running = Running::start(command, false)?;
    let (ended, measured) = swap_group.wait(running.child(), name)?;
    let said = last_words(log);
    let result = match ended {
        Ended::Itself(status) if status.success() => Ok(said),
        Ended::Itself(status) => Err(format!("{name}: {status}: {said}")),
        Ended::TimedOut => Err(format!("{name} was killed after {:.0} s", measured.seconds)),
    };
    Ok((result, measured))
}
