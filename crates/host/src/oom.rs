//! The kernel's OOM killer, called by hand, and how long programs have waited for memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Takes commands for the kernel, one character each (kernel document `admin-guide/sysrq.rst`).
/// `/proc/sys/kernel/sysrq` limits the keyboard, not this file.
const TRIGGER: &str = "/proc/sysrq-trigger";
/// "Will call the oom killer to kill a memory hog process, but do not panic if nothing can be
/// killed."
const KILL: &[u8] = b"f";
/// Pressure stall information (kernel document `accounting/psi.rst`).
const PSI: &str = "/proc/pressure/memory";

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

/// How long anybody has waited for memory.
#[derive(Debug)]
pub struct MemoryStall(File);

impl MemoryStall {
    /// Opens the kernel's file for it and reads it once, so that the kernel has its buffer.
    ///
    /// # Errors
    /// Kernels without PSI, or started with `psi=0`, do not tell.
    pub fn open() -> io::Result<MemoryStall> {
        let stall = MemoryStall(File::open(PSI)?);
        stall.total().map(|_| stall).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// For how long at least one program has waited for memory, since the machine started.
    #[must_use]
    pub fn total(&self) -> Option<Duration> {
        let mut text = [0; 256];
        let length = self.0.read_at(&mut text, 0).ok()?;
        parse_stall(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// The microseconds of the line `some avg10=… avg60=… avg300=… total=N`.
pub(crate) fn parse_stall(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}
