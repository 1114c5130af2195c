//! When pages were last used.

use alloc::sync::Arc;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU32, Ordering};

/// The seconds that pages are dated by. The engine knows no clock: somebody outside sets it, as
/// often as he likes ages to be exact.
#[derive(Default)]
pub struct Clock(AtomicU32);

impl Clock {
    /// It is `seconds` now; counted from when the machine started, as the kernel does.
    pub fn set(&self, seconds: u32) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    /// What it was set to last.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The time of last use for each page: four bytes a page, of pages that are used.
pub(crate) struct Accesses {
    clock: Arc<Clock>,
    times: LazyTable<AtomicU32>,
}

/// Bytes a page's time takes.
pub(crate) const TIME_BYTES: u64 = 4;

impl Accesses {
    pub(crate) fn new(
        provider: &dyn MemoryProvider,
        clock: Arc<Clock>,
        pages: usize,
    ) -> Result<Accesses, NoMemory> {
        Ok(Accesses { clock, times: LazyTable::new(provider, pages)? })
    }

    /// The page is used now.
    #[inline]
    pub(crate) fn note(&self, index: usize) {
        let (time, now) = (self.times.get(index), self.clock.now());
        // Looked at first: a line that many processors read should stay with all of them.
        if time.load(Ordering::Relaxed) != now {
            time.store(now, Ordering::Relaxed);
        }
    }

    /// When it was last.
    pub(crate) fn last(&self, index: usize) -> u32 {
        self.times.get(index).load(Ordering::Relaxed)
    }
}
