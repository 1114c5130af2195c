//! Calls the kernel's OOM killer by hand.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The file for sysrq commands, one character each (kernel document `admin-guide/sysrq.rst`).
/// `/proc/sys/kernel/sysrq` limits the keyboard, not this file.
const TRIGGER: &str = "/proc/sysrq-trigger";
/// "Will call the oom killer to kill a memory hog process, but do not panic if nothing can be
/// killed."
const KILL: &[u8] = b"f";

/// Calls the kernel's OOM killer. Its file is opened before it is needed.
#[derive(Debug)]
pub struct OomKiller(File);

impl OomKiller {
    /// Opens the file; it kills nothing.
    ///
    /// # Errors
    /// The error of the system: only root may open it, and in many containers not even root.
    pub fn open() -> io::Result<OomKiller> {
        OpenOptions::new().write(true).open(TRIGGER).map(OomKiller)
    }

    /// Makes the kernel kill the process that takes most memory, as in an OOM. It returns before
    /// the process is killed.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn call(&self) -> io::Result<()> {
        self.0.write_at(KILL, 0).map(drop)
    }
}
