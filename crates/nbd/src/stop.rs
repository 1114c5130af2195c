//! How threads that wait for a client or a connection are told to stop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use sync::atomic::{AtomicBool, Ordering};

/// Tells every thread to stop.
pub(crate) struct Stop {
    given: AtomicBool,
    /// Readable for ever once `hold` is shut down.
    seen: UnixStream,
    hold: UnixStream,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Stop> {
        let (seen, hold) = UnixStream::pair()?;
        Ok(Stop { given: AtomicBool::new(false), seen, hold })
    }

    /// Was it given? Threads that wait are woken by other means, so this orders nothing.
    #[inline]
    pub(crate) fn given(&self) -> bool {
        self.given.load(Ordering::Relaxed)
    }

    /// Readable once it was given.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.seen.as_fd()
    }

    /// Gives it, to all who wait and will wait.
    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::Relaxed);
        // It cannot fail on a connected pair.
        let _ = self.hold.shutdown(std::net::Shutdown::Both);
    }
}
