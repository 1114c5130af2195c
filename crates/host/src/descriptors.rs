//! Tables of descriptors, and descriptors that another process passes to this one.
//!
//! # Why unsafe
//! A number names a descriptor that nobody owns yet, or one that belongs to another table.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The first descriptor that a process is handed over: SD_LISTEN_FDS_START.
pub const FIRST_PASSED: RawFd = 3;

fn checked(result: libc::c_int) -> io::Result<RawFd> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A descriptor that this process was started with. It is looked at before it is owned.
fn passed(number: RawFd) -> io::Result<BorrowedFd<'static>> {
    // SAFETY: the call takes numbers.
    checked(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: it is open, and stays so: whoever started this process made it for this process.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Owns a descriptor that this process was started with, and keeps it from programs that this
/// process starts.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    close_on_exec(number)?;
    // SAFETY: it is open, and whoever started this process made it for this process to own.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Keeps a descriptor that this process was started with from programs that this process starts.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn close_on_exec(number: RawFd) -> io::Result<()> {
    let fd = passed(number)?;
    Ok(fcntl_setfd(fd, fcntl_getfd(fd)? | FdFlags::CLOEXEC)?)
}

/// A copy of a descriptor which this process was started with and which stays open, as the standard
/// streams do.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn copy_of_inherited(number: RawFd) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(passed(number)?, FIRST_PASSED)?)
}

/// The number of a copy of `fd`, at least `least`, that programs of this process get. Nobody owns
/// it: it stays open as long as the table of descriptors, which may be one of the calling thread
/// ([`own_descriptors`]).
///
/// # Errors
/// The error of fcntl(2).
pub fn copy_for_programs(fd: impl AsFd, least: RawFd) -> io::Result<RawFd> {
    // SAFETY: the call takes numbers; the descriptor is borrowed.
    checked(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD, least) })
}

/// Gives the calling thread a table of descriptors of its own, a copy of the one that all threads
/// of the process share.
///
/// # Errors
/// The error of unshare(2).
pub fn own_descriptors() -> io::Result<()> {
    // SAFETY: the copy has all that the other one has.
    Ok(unsafe { unshare_unsafe(UnshareFlags::FILES) }?)
}

/// Makes `number` a copy of `fd` that programs of this process get. What `number` was is closed, so
/// the calling thread has a table of descriptors of its own ([`own_descriptors`]), and uses it for
/// nothing else.
///
/// # Errors
/// The error of dup2(2).
pub fn place(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: the call takes numbers. Nobody uses the descriptor that it closes: the owner of that
    // one is on another thread, which has another table.
    checked(unsafe { libc::dup2(fd.as_raw_fd(), number) }).map(drop)
}

/// Makes the number of `old` a copy of `new`, and closes what it was.
///
/// # Errors
/// The error of dup3(2).
pub fn replace_descriptor(old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> io::Result<()> {
    let (old, new) = (old.as_raw_fd(), new.as_raw_fd());
    // SAFETY: the call takes numbers of open descriptors. The owner of `old` goes on owning it.
    checked(unsafe { libc::dup3(new, old, libc::O_CLOEXEC) }).map(drop)
}

/// Closes all descriptors in a table of this thread alone: other threads keep theirs. The caller
/// has nothing that owns a descriptor.
///
/// # Errors
/// `ENOSYS` before Linux 5.9 (close_range(2)); nothing is closed then.
pub fn close_all_of_this_thread() -> io::Result<()> {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: the call takes numbers. It closes copies of descriptors that only this thread has.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) };
    checked(result as libc::c_int).map(drop)
}
