//! The time of last use of each page.

use alloc::sync::Arc;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::OnceLock;
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

/// The time of last use of each page. It takes four bytes for each page that is used. Eight
/// neighbours of a clone have one time, that of the last use of any of them, unless the times
/// outlive the process.
pub(crate) struct Accesses {
    clock: Arc<Clock>,
    times: LazyTable<AtomicU32>,
    /// The times of clones. They come with the first clone, if they end with the process.
    of_clones: OnceLock<LazyTable<AtomicU32>>,
}

/// Bytes of the time of one page.
pub(crate) const TIME_BYTES: u64 = 4;
/// Pages of a clone that have one time.
pub(crate) const WITH_ONE_TIME: usize = 8;

impl Accesses {
    pub(crate) fn new(
        provider: &dyn MemoryProvider,
        clock: Arc<Clock>,
        pages: usize,
    ) -> Result<Accesses, NoMemory> {
        let times = LazyTable::new(provider, pages)?;
        Ok(Accesses { clock, times, of_clones: OnceLock::new() })
    }

    /// Gets ready for clones.
    pub(crate) fn expect_clones(&self, provider: &dyn MemoryProvider) -> Result<(), NoMemory> {
        if self.of_clones.get().is_none() {
            let times = LazyTable::new(provider, self.times.len().div_ceil(WITH_ONE_TIME))?;
            // Another thread may have been quicker.
            let _ = self.of_clones.set(times);
        }
        Ok(())
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

    /// Notes that a page of a clone was used at this time, or later.
    #[cold]
    pub(crate) fn note_clone(&self, index: usize, at: u32) {
        let time = self.time_of_clone(index);
        if time.load(Ordering::Relaxed) < at {
            time.fetch_max(at, Ordering::Relaxed);
        }
    }

    /// Notes that a page of a clone is used now.
    #[cold]
    pub(crate) fn note_clone_now(&self, index: usize) {
        self.note_clone(index, self.clock.now());
    }

    /// The time when a page of a clone, or a neighbour, was last used.
    pub(crate) fn last_of_clone(&self, index: usize) -> u32 {
        self.time_of_clone(index).load(Ordering::Relaxed)
    }

    fn time_of_clone(&self, index: usize) -> &AtomicU32 {
        match self.of_clones.get() {
            Some(times) => times.get(index / WITH_ONE_TIME),
            None => self.times.get(index),
        }
    }

    /// Whether clones have times of their own: they have, unless these outlive the process.
    pub(crate) fn has_those_of_clones(&self) -> bool {
        self.of_clones.get().is_some()
    }

    /// The time when the page was last used.
    pub(crate) fn last(&self, index: usize) -> u32 {
        self.times.get(index).load(Ordering::Relaxed)
    }
}
