//! The kernel's permission to hand requests over by io_uring: a parameter of its module `fuse`.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How long other processes may have the lock. Each needs it for some milliseconds; but any user
/// may take it, and keep it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// The permission, given as long as this lives. A connection that began in this time keeps it. A
/// process that is killed in this time, of a few milliseconds, leaves it given: then any server of
/// FUSE may ask for io_uring, and nothing else changes.
pub(crate) struct Enabled {
    /// Another process that wants it given waits for our lock, and so finds what was there before.
    _lock: File,
    was_off: bool,
}

impl Enabled {
    /// Gives the permission, unless it is there.
    ///
    /// # Errors
    /// What is missing: the kernel's support, or the right to write the parameter.
    pub(crate) fn now() -> io::Result<Enabled> {
        let told = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => io::Error::new(
                ErrorKind::Unsupported,
                "this kernel has no FUSE over io_uring (Linux 6.14)",
            ),
            kind => io::Error::new(kind, format!("{PARAMETER}: {error}")),
        };
        let lock = File::open(PARAMETER).map_err(told)?;
        take(&lock).map_err(told)?;
        let was_off = fs::read_to_string(PARAMETER).map_err(told)?.trim() == "N";
        // From here on, a drop restores it.
        let enabled = Enabled { _lock: lock, was_off };
        if was_off {
            fs::write(PARAMETER, "Y").map_err(told)?;
        }
        Ok(enabled)
    }
}

fn take(lock: &File) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let why = "another process keeps its lock (/proc/locks has its number)";
                return Err(io::Error::new(ErrorKind::WouldBlock, why));
            }
        }
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        if self.was_off {
            let _ = fs::write(PARAMETER, "N");
        }
    }
}
