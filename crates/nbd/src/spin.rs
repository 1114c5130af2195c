//! Polls for the next request for a moment before the thread sleeps.
//!
//! Waking a thread on another CPU costs both sides more than a request does. So it pays to stay
//! awake for a client that sends the next request right after a reply. If the client needs this
//! CPU, or pauses for longer, polling takes time from it. After each poll that finds nothing, the
//! thread polls less often.

use std::io;
use std::time::{Duration, Instant};

use crate::stream::Stream;

/// The most receives without polling between two polls.
const RARELY: u32 = 256;

/// Decides when to poll on one connection.
pub(crate) struct Spinner {
    limit: Duration,
    /// Receives left until the next poll.
    skip: u32,
    /// The value of `skip` after the next poll that finds nothing.
    penalty: u32,
}

impl Spinner {
    /// Polls for up to `limit`; never on a machine with one CPU.
    pub(crate) fn new(limit: Duration) -> Spinner {
        let alone = host::online_cpus() == 1;
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
        let mut start = None;
        loop {
            if let Some(received) = stream.receive_now(into)? {
                self.penalty = (self.penalty / 2).max(1);
                return Ok(received);
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= self.limit {
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
