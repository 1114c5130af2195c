//! The stop signal for threads that wait for a client or a connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use sync::atomic::{AtomicBool, Ordering};

/// Tells every thread to stop.
pub(crate) struct Stop {
    given: AtomicBool,
    /// Stays readable after `hold` is shut down.
    seen: UnixStream,
    hold: UnixStream,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Stop> {
        let (seen, hold) = UnixStream::pair()?;
        Ok(Stop { given: AtomicBool::new(false), seen, hold })
    }

    /// Is the stop given? Other means wake the waiting threads, so this load orders nothing.
    #[inline]
    pub(crate) fn given(&self) -> bool {
        self.given.load(Ordering::Relaxed)
    }

    /// A descriptor that is readable after the stop is given.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.seen.as_fd()
    }

    /// Gives the stop to all threads that wait now or later.
    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::Relaxed);
        // It cannot fail on a connected pair.
        let _ = self.hold.shutdown(std::net::Shutdown::Both);
    }
}
