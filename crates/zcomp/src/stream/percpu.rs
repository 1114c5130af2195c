//! `percpu`: a stream for each lane.

use alloc::boxed::Box;

use sync::atomic::{AtomicUsize, Ordering};
use sync::{CachePadded, Mutex, MutexGuard};
use units::Lane;

use super::{OneStream, Stream, Streams};
use crate::{CodecError, Compressor};

/// One stream per lane, each behind a lock of its own.
///
/// A thread normally has its lane's stream to itself. If another thread was preempted while using
/// it, any stream that is free will do; only when none is does the thread wait for its own.
pub struct LaneStreams {
    lanes: Box<[CachePadded<Mutex<Stream>>]>,
    /// Only so many of them are used.
    limit: AtomicUsize,
}

impl LaneStreams {
    /// The name of the policy.
    pub const NAME: &str = "percpu";

    /// Streams for `compressor` on `lanes` lanes (at least one).
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor, lanes: usize) -> Result<LaneStreams, CodecError> {
        let lane = |_| Ok(CachePadded::new(Mutex::new(Stream::new(compressor)?)));
        let lanes: Box<[_]> = (0..lanes.max(1)).map(lane).collect::<Result<_, CodecError>>()?;
        Ok(LaneStreams { limit: AtomicUsize::new(lanes.len()), lanes })
    }

    #[cold]
    fn get_elsewhere(&self, lanes: usize, own: usize) -> MutexGuard<'_, Stream> {
        let (before, from) = self.lanes[..lanes].split_at(own);
        from[1..]
            .iter()
            .chain(before)
            .find_map(|lane| lane.try_lock())
            .unwrap_or_else(|| from[0].lock())
    }
}

impl Streams for LaneStreams {
    type Guard<'a> = MutexGuard<'a, Stream>;

    #[inline]
    fn get(&self, lane: Lane) -> MutexGuard<'_, Stream> {
        let (n, lanes) = (lane.0 as usize, self.limit.load(Ordering::Relaxed));
        // A division takes as long as a lock, and is hardly ever needed.
        let own = if n < lanes { n } else { n % lanes };
        match self.lanes[own].try_lock() {
            Some(stream) => stream,
            None => self.get_elsewhere(lanes, own),
        }
    }

    fn count(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        self.limit.store(count.clamp(1, self.lanes.len()), Ordering::Relaxed);
        Ok(())
    }
}
