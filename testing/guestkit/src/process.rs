//! The system calls by which a watching program protects itself and stops another process.
//!
//! # Why unsafe
//! The standard library lacks the system calls that lock memory, that stop waits for swap, that
//! send a signal, and that open a socket of netlink.

use std::os::fd::{FromRawFd, OwnedFd};
use std::{fs, io};

/// `PR_SET_IO_FLUSHER`, which the libc crate lacks; see prctl(2).
const IO_FLUSHER: libc::c_int = 57;

/// Protects this process: the OOM killer spares it, its memory is locked, and it does not wait for
/// swap. Skips a protection that is not permitted; true if all succeeded.
#[must_use]
pub fn protect() -> bool {
    let mut protected = fs::write("/proc/self/oom_score_adj", "-1000").is_ok();
    // SAFETY: the call locks the present and future memory of this process and changes no contents.
    protected &= unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0;
    // SAFETY: the call sets a flag of this process for the kernel's allocator. It accesses no
    // memory.
    protected &= unsafe { libc::prctl(IO_FLUSHER, 1, 0, 0, 0) } == 0;
    protected
}

/// Locks the memory that this process has now, its stack included, and nothing that it maps later.
/// True if that succeeded.
#[must_use]
pub fn stay() -> bool {
    // SAFETY: the call locks the present memory of this process and changes no contents.
    unsafe { libc::mlockall(libc::MCL_CURRENT) == 0 }
}

/// Stops the process `pid` (`SIGSTOP`) or continues it (`SIGCONT`).
///
/// # Errors
/// The error of the system call.
pub fn halt(pid: i32, stopped: bool) -> io::Result<()> {
    let signal = if stopped { libc::SIGSTOP } else { libc::SIGCONT };
    // SAFETY: the call takes two numbers.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket of generic netlink; the kernel is at its other end.
///
/// # Errors
/// The error of the system call.
pub fn generic_netlink() -> io::Result<fs::File> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes three numbers.
    match unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new and nobody else's.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }.into()),
    }
}
