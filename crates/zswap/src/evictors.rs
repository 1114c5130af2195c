//! Buffers for pages on their way to devices, and the limit of such pages.

use alloc::vec::Vec;

use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use units::{PAGE_SIZE, Page};

use crate::area::BATCH;

/// Buffers for pages on their way to devices. A thread that writes back takes one set of [`BATCH`]
/// pages. The number of sets limits the number of writes under way.
pub(crate) struct Evictors {
    free: Mutex<Vec<Pages>>,
    sets: usize,
    /// Pages on their way to devices now.
    under_way: AtomicU64,
}

pub(crate) type Pages = Vec<Page>;

impl Evictors {
    /// Makes one set for each CPU, and one for the background thread.
    pub(crate) fn new(cpus: usize) -> Evictors {
        let sets = cpus + 1;
        let set = |_| alloc::vec![[0; PAGE_SIZE]; BATCH];
        let free = Mutex::new((0..sets).map(set).collect());
        Evictors { free, sets, under_way: AtomicU64::new(0) }
    }

    /// The most pages that can be under way.
    pub(crate) fn pages(&self) -> u32 {
        (self.sets * BATCH) as u32
    }

    /// Pages on their way to devices now.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Takes a set for at most `want` pages, so that at most `most` pages are under way in all.
    pub(crate) fn take(&self, want: usize, most: u32) -> Option<(Pages, usize)> {
        let set = self.free.lock().pop()?;
        let mut granted = 0;
        let more = |now: u64| {
            granted = u64::from(most).saturating_sub(now).min(want as u64);
            (granted > 0).then_some(now + granted)
        };
        match self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Some((set, granted as usize)),
            Err(_) => {
                self.free.lock().push(set);
                None
            }
        }
    }

    pub(crate) fn give_back(&self, set: Pages, granted: usize) {
        self.under_way.fetch_sub(granted as u64, Ordering::Relaxed);
        // The vector has capacity for all sets from the start.
        self.free.lock().push(set);
    }
}
