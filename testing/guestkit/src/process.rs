//! What the watching programs do to themselves and to others.
//!
//! # Why unsafe
//! Locking memory, telling the kernel not to wait for swap, and sending a signal are system calls
//! that the standard library does not have.

use std::{fs, io};

/// `PR_SET_IO_FLUSHER`, which the libc crate does not have; see prctl(2).
const IO_FLUSHER: libc::c_int = 57;

/// This process is never ended for the sake of memory, has all of its memory locked, and does not
/// wait for swap. What it is not allowed it does without; the return value tells.
#[must_use]
pub fn protect() -> bool {
    let mut protected = fs::write("/proc/self/oom_score_adj", "-1000").is_ok();
    // SAFETY: locks what this process has and will have; it changes no contents.
    protected &= unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0;
    // SAFETY: a flag of this process for the kernel's allocator; nothing is read or written.
    protected &= unsafe { libc::prctl(IO_FLUSHER, 1, 0, 0, 0) } == 0;
    protected
}

/// Stops the process `pid` (`SIGSTOP`), or has it go on (`SIGCONT`).
///
/// # Errors
/// What the system reports.
pub fn halt(pid: i32, stopped: bool) -> io::Result<()> {
    let signal = if stopped { libc::SIGSTOP } else { libc::SIGCONT };
    // SAFETY: it takes two numbers.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
