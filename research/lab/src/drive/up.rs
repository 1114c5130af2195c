//! Our program with one block device, for as long as this lives: `rampack up` in a root of its own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::interrupt;
use crate::programs::{self, Running, last_words};

/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to end: whoever looks at its block device holds it up for moments.
const LEAVING: Duration = Duration::from_secs(30);
/// What a block device of ours takes, besides root.
const NODES: [&str; 2] = ["/dev/fuse", "/dev/loop-control"];

/// How a device is to be made.
pub struct Wanted<'a> {
    /// Its size.
    pub bytes: usize,
    /// Its codec.
    pub algorithm: &'a str,
    /// Its slot scheme.
    pub slots: &'a str,
    /// Its stream policy, if it is not the usual one.
    pub streams: Option<&'a str>,
    /// How many streams, if not as many as it likes.
    pub max_streams: Option<usize>,
}

/// A running program with a block device.
pub struct Up {
    // Dropped in this order: the program has files in the directory.
    running: Running,
    device: PathBuf,
    _directory: TempDir,
}

/// Says what is missing for block devices of ours on this machine.
///
/// # Errors
/// Something is, or `program` has no option `--streams` and would need it.
pub fn check(program: &Path, needs_streams: bool) -> Result<()> {
    for node in NODES {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(node)
            .with_context(|| format!("a block device of ours takes root and {node}"))?;
    }
    if needs_streams && !programs::said(program, &["up", "--help"])?.contains("--streams") {
        bail!(
            "{} up has no option --streams, so its stream policy cannot be chosen from here; use \
             --through process, or leave other policies out with --policies",
            program.display()
        );
    }
    Ok(())
}

impl Up {
    /// Starts `program` and waits for the block device.
    ///
    /// # Errors
    /// It cannot be run, or has no block device to offer; its own words are in the message.
    pub fn start(program: &Path, wanted: &Wanted<'_>) -> Result<Up> {
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let mut command = Command::new(program);
        command.args(["up", "--transport", "fuse", "--force", "--root"]);
        command.arg(directory.path().join("root"));
        command.args(["--size", &wanted.bytes.to_string()]);
        command.args(["--algorithm", wanted.algorithm, "--slots", wanted.slots]);
        if let Some(streams) = wanted.streams {
            command.args(["--streams", streams]);
        }
        if let Some(streams) = wanted.max_streams {
            command.args(["--set", &format!("max_comp_streams={streams}")]);
        }
        let file = || tempfile::tempfile().context("cannot make a temporary file");
        let (said, complained) = (directory.path().join("said"), file()?);
        let out = File::create(&said).with_context(|| format!("cannot make {}", said.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(complained.try_clone()?);
        // Of a group of its own: a Ctrl-C is for us, and we end it when nobody uses the device.
        command.process_group(0);
        let mut running = Running::start_gently(&mut command, LEAVING)?;
        let device = interrupt::wait_for("rampack up", PATIENCE, || {
            running.check()?;
            let text = fs::read_to_string(&said).or_else(|error| match error.kind() {
                io::ErrorKind::InvalidData => Ok(String::new()),
                _ => Err(error),
            })?;
            // The whole message is there when its last line is.
            Ok(text.contains("end it").then(|| block_device(&text).map(PathBuf::from)))
        });
        match device {
            Ok(Some(device)) => Ok(Up { running, device, _directory: directory }),
            Ok(None) => bail!("rampack up has no block device: {}", last_words(complained)),
            Err(error) => bail!("{error:#}: {}", last_words(complained)),
        }
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Nothing, while it runs.
    ///
    /// # Errors
    /// It has ended; says how.
    pub fn check(&mut self) -> Result<()> {
        self.running.check()
    }
}

/// The block device in what `rampack up` says when it is ready.
fn block_device(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix("block device")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_block_device() {
        let text = "zram0 is ready: 1G, compressed with lz4, no memory limit.\n\n  block device  \
                    /dev/loop3\n  same, by name /run/rampack/dev/zram0\n\n  end it        Ctrl-C\n";
        assert_eq!(block_device(text), Some("/dev/loop3"));
        assert_eq!(block_device("zram0 is ready\n  file          /x\n"), None);
    }
}
