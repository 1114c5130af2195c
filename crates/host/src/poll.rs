//! Waiting for descriptors. No call here uses the heap.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The event to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum For {
    /// A read would not wait.
    Reading,
    /// A write would not wait.
    Writing,
}

/// Waits until one of `fds` is ready, broken or at its end, for `time` at most (None: for ever).
/// Returns for each whether it is; a signal may end the wait early.
///
/// # Errors
/// The error of poll(2).
pub fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    what: For,
    time: Option<Duration>,
) -> io::Result<[bool; N]> {
    let events = match what {
        For::Reading => PollFlags::IN,
        For::Writing => PollFlags::OUT,
    };
    let mut asked = fds.map(|fd| PollFd::from_borrowed_fd(fd, events));
    // A time that is too long for the system is for ever.
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(&mut asked, time.as_ref()) {
        Ok(_) => Ok(asked.map(|fd| !fd.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}

/// As [`wait`] for one descriptor, whatever signals come; false when `end` passes first.
///
/// # Errors
/// The error of poll(2).
pub fn wait_until(fd: BorrowedFd<'_>, what: For, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if wait([fd], what, Some(left))? == [true] {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}
