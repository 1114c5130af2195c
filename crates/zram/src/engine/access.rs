//! The time of last use of each page.

use alloc::sync::Arc;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU32, Ordering};

/// The clock that dates the pages, in seconds. The engine reads no clock of its own: the daemon
/// sets this one. Ages are more exact if the clock is set more often.
#[derive(Default)]
pub struct Clock(AtomicU32);

impl Clock {
    /// Sets the time to `seconds`, counted from the start of the machine, as the kernel does.
    pub fn set(&self, seconds: u32) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    /// The time that was set last.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The time of last use of each page. It takes four bytes for each page that is used.
pub(crate) struct Accesses {
    clock: Arc<Clock>,
    times: LazyTable<AtomicU32>,
}

/// Bytes of the time of one page.
pub(crate) const TIME_BYTES: u64 = 4;

impl Accesses {
    pub(crate) fn new(
        provider: &dyn MemoryProvider,
        clock: Arc<Clock>,
        pages: usize,
    ) -> Result<Accesses, NoMemory> {
        Ok(Accesses { clock, times: LazyTable::new(provider, pages)? })
    }

    /// Notes that the page is used now.
    #[inline]
    pub(crate) fn note(&self, index: usize) {
        let (time, now) = (self.times.get(index), self.clock.now());
        // The load comes first: a cache line that many processors read stays shared among them.
        if time.load(Ordering::Relaxed) != now {
            time.store(now, Ordering::Relaxed);
        }
    }

    /// Gives a page the time of another.
    pub(crate) fn copy(&self, from: usize, to: usize) {
        self.times.get(to).store(self.last(from), Ordering::Relaxed);
    }

    /// The time when the page was last used.
    pub(crate) fn last(&self, index: usize) -> u32 {
        self.times.get(index).load(Ordering::Relaxed)
    }
}
