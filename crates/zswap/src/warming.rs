//! The state of recompression: how far a pass has come, and what its thread works with.

use alloc::{boxed::Box, format};

use control::{ControlError, Errno};
use objects::Packing;
use sync::Mutex;
use sync::atomic::{AtomicU32, Ordering};
use tiers::Round;
use units::{PAGE_SIZE, Page};
use zcomp::{Compressor, Stream};

/// The state of recompression. Any number of threads may use it at once.
pub(crate) struct Warming {
    /// `None` while it is off. One thread at a time walks on.
    pub(crate) walk: Mutex<Option<Walk>>,
    /// How many times [`crate::Policy::auto_age`] a page waits; 0 while recompression is off.
    waits: AtomicU32,
}

impl Default for Warming {
    fn default() -> Warming {
        Warming { walk: Mutex::new(None), waits: AtomicU32::new(0) }
    }
}

impl Warming {
    /// How many times [`crate::Policy::auto_age`] a page waits; 0 while recompression is off.
    pub(crate) fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waits(&self, waits: u32) {
        self.waits.store(waits, Ordering::Relaxed);
    }
}

/// The memory that the thread works with; nothing is added to it later.
pub(crate) struct Tool {
    /// Its own, so that no reader waits for it.
    pub(crate) stream: Stream,
    pub(crate) page: Box<Page>,
    pub(crate) packing: Packing,
}

/// A pass through all entries.
pub(crate) struct Walk {
    pub(crate) tool: Tool,
    pub(crate) round: Round,
    /// Nanoseconds since the pass began.
    pub(crate) since: u64,
    /// Pages recompressed, and read soon afterwards, when the pass before ended.
    pub(crate) before: (u64, u64),
}

impl Walk {
    /// Begins with the counts `before`.
    ///
    /// # Errors
    /// `ENOMEM` when memory is out.
    pub(crate) fn new(
        compressor: &dyn Compressor,
        packing: Packing,
        before: (u64, u64),
    ) -> Result<Walk, ControlError> {
        let stream = Stream::new(compressor)
            .map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
        let tool = Tool { stream, page: Box::new([0; PAGE_SIZE]), packing };
        let round = Round::default();
        Ok(Walk { tool, round, since: 0, before })
    }
}
