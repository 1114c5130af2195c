//! A block device of ours, served by `rampack-lab serve` in a process of its own until drop.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::interrupt;
use crate::programs::{Running, last_words};

/// Time it may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time it may take to end: a program that reads its block device can delay it for moments.
const LEAVING: Duration = Duration::from_secs(30);
/// The devices that our block device needs, besides root.
const NODES: [&str; 2] = ["/dev/fuse", "/dev/loop-control"];

/// A running program with a block device.
pub struct Up {
    // Dropped in this order: the program has files in the directory.
    running: Running,
    device: PathBuf,
    _directory: TempDir,
}

/// Checks that this machine has the needs of our block devices.
///
/// # Errors
/// One is missing; the message names it.
pub fn check() -> Result<()> {
    for node in NODES {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(node)
            .with_context(|| format!("a block device of ours takes root and {node}"))?;
    }
    Ok(())
}

impl Up {
    /// Starts this program as a child `serve` with these arguments, and waits for the block device.
    ///
    /// # Errors
    /// The child cannot run, or offers no block device; the message contains its output.
    pub fn start(arguments: &[&str]) -> Result<Up> {
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let program = env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("serve").args(arguments);
        let file = || tempfile::tempfile().context("cannot make a temporary file");
        let (said, complained) = (directory.path().join("said"), file()?);
        let out = File::create(&said).with_context(|| format!("cannot make {}", said.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(complained.try_clone()?);
        // A process group of its own: Ctrl-C reaches only us, and we end it when its device is
        // unused.
        command.process_group(0);
        let mut running = Running::start_gently(&mut command, LEAVING)?;
        let device = interrupt::wait_for("rampack-lab serve", PATIENCE, || {
            running.check()?;
            let text = fs::read_to_string(&said).or_else(|error| match error.kind() {
                io::ErrorKind::InvalidData => Ok(String::new()),
                _ => Err(error),
            })?;
            // The message is complete when its last line is there.
            Ok(text.contains("end it").then(|| block_device(&text).map(PathBuf::from)))
        });
        match device {
            Ok(Some(device)) => Ok(Up { running, device, _directory: directory }),
            Ok(None) => bail!("rampack-lab serve has no block device: {}", last_words(complained)),
            Err(error) => bail!("{error:#}: {}", last_words(complained)),
        }
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Succeeds while the child runs.
    ///
    /// # Errors
    /// The child has ended; the message says how.
    pub fn check(&mut self) -> Result<()> {
        self.running.check()
    }
}

/// The block device in the child's message.
fn block_device(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix("block device")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_block_device() {
        let text = "disk is ready\n\n  block device  /dev/loop3\n  end it        Ctrl-C\n";
        assert_eq!(block_device(text), Some("/dev/loop3"));
        assert_eq!(block_device("disk is ready\n  NBD           nbd+unix:///x\n"), None);
    }
}
