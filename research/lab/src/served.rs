//! A block device of ours, served by `rampack-lab serve` in a process of its own until drop.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::programs::Running;

/// Time it may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time it may take to end: a program that reads its block device can delay it for moments.
const LEAVING: Duration = Duration::from_secs(30);

/// A running program with a block device.
pub struct Up {
    // Dropped in this order: the program has files in the directory.
    running: Running,
    device: PathBuf,
    _directory: TempDir,
}

impl Up {
    /// Starts this program as a child `serve` with these arguments, and waits for the block device.
    pub fn start(arguments: &[&str]) -> Result<Up> {
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let mut command = Command::new(env::current_exe().context("cannot find this program")?);
        let said = directory.path().join("said");
        let out = File::create(&said).with_context(|| format!("cannot make {}", said.display()))?;
        let mut running =
            Running::start_gently(command.arg("serve").args(arguments).stdout(out), LEAVING)?;
        let device = running.wait_until(PATIENCE, || {
            let text = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
            // The message is complete when its last line is there.
            Ok(block_device(&text).filter(|_| text.contains("end it")).map(PathBuf::from))
        })?;
        Ok(Up { running, device, _directory: directory })
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Succeeds while the child runs.
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
