//! Looking for the next request for a moment before sleeping.
//!
//! Waking a thread on another CPU costs both sides more than a request does, so a client that
//! answers a reply with the next request is best met awake. Where the client needs this very CPU,
//! or thinks for longer, looking only takes time from it: each time it was in vain it is tried
//! less often.

use std::io;
use std::time::{Duration, Instant};

use crate::stream::Stream;

/// Times without looking between two tries, at most.
const RARELY: u32 = 256;

/// Whether looking is worth while on one connection.
pub(crate) struct Spinner {
    limit: Duration,
    /// Receives to go until the next try.
    skip: u32,
    /// What `skip` becomes the next time it was in vain.
    penalty: u32,
}

impl Spinner {
    /// Looks for up to `limit`, and never where there is only one CPU.
    pub(crate) fn new(limit: Duration) -> Spinner {
        let alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        let limit = if alone { Duration::ZERO } else { limit };
        Spinner { limit, skip: 0, penalty: 1 }
    }

    /// As [`Stream::receive`].
    #[inline]
    pub(crate) fn receive(&mut self, stream: &Stream, into: &mut [u8]) -> io::Result<usize> {
        if self.limit.is_zero() {
            return stream.receive(into);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return stream.receive(into);
        }
        let start = Instant::now();
        loop {
            if let Some(received) = stream.receive_now(into)? {
                self.penalty = (self.penalty / 2).max(1);
                return Ok(received);
            }
            if start.elapsed() >= self.limit {
                break;
            }
            for _ in 0..16 {
                sync::atomic::spin_hint();
            }
        }
        self.skip = self.penalty;
        self.penalty = (self.penalty * 2).min(RARELY);
        stream.receive(into)
    }
}
