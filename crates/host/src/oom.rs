//! The kernel's OOM killer, called by hand.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Takes commands for the kernel, one character each (kernel document `admin-guide/sysrq.rst`).
/// `/proc/sys/kernel/sysrq` limits the keyboard, not this file.
const TRIGGER: &str = "/proc/sysrq-trigger";
/// "Will call the oom killer to kill a memory hog process, but do not panic if nothing can be
/// killed."
const KILL: &[u8] = b"f";

/// Calls the kernel's OOM killer. It is open before it is needed.
#[derive(Debug)]
pub struct OomKiller(File);

impl OomKiller {
    /// Opens the kernel's file for it; nothing is killed.
    ///
    /// # Errors
    /// Who is not root may not; in many containers nobody may.
    pub fn open() -> io::Result<OomKiller> {
        OpenOptions::new().write(true).open(TRIGGER).map(OomKiller)
    }

    /// The kernel ends the process that takes most memory, as if it had run out of it. Returns
    /// before that has happened.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn call(&self) -> io::Result<()> {
        self.0.write_at(KILL, 0).map(drop)
    }
}
