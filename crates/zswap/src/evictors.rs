//! Buffers for pages on their way to devices, and the limit of such pages.

use alloc::vec::Vec;

use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, park};
use units::{PAGE_SIZE, Page};

use crate::area::BATCH;

/// How often [`Evictors::wait`] looks: for about a second.
const LOOKS: u32 = 1100;

/// Buffers for pages on their way to devices. A thread that writes back takes one set of [`BATCH`]
/// pages. The number of sets limits the number of writes under way.
pub(crate) struct Evictors {
    free: Mutex<Vec<Pages>>,
    sets: usize,
    /// Pages on their way to devices now.
    under_way: AtomicU64,
    /// Pages that have left the cache.
    left: AtomicU64,
}

pub(crate) type Pages = Vec<Page>;

impl Evictors {
    /// Makes one set for each CPU, and one for the background thread.
    pub(crate) fn new(cpus: usize) -> Evictors {
        let sets = cpus + 1;
        let set = |_| alloc::vec![[0; PAGE_SIZE]; BATCH];
        let free = Mutex::new((0..sets).map(set).collect());
        let (under_way, left) = (AtomicU64::new(0), AtomicU64::new(0));
        Evictors { free, sets, under_way, left }
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

    /// Gives back a set of [`Evictors::take`], after `left` of its pages have left the cache.
    pub(crate) fn give_back(&self, set: Pages, granted: usize, left: u64) {
        self.left.fetch_add(left, Ordering::Relaxed);
        // Pairs with `wait`.
        self.under_way.fetch_sub(granted as u64, Ordering::Release);
        // The vector has capacity for all sets from the start.
        self.free.lock().push(set);
    }

    /// Pages that have left the cache so far.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Waits until pages have left the cache since [`Evictors::left`] was `before`, as long as some
    /// are on their way: for a second at most, because their device may hang. Returns whether pages
    /// have left. Needs no memory.
    pub(crate) fn wait(&self, before: u64) -> bool {
        for round in 0..LOOKS {
            // Pairs with `give_back`: whoever has no pages under way any more has counted them.
            if self.under_way.load(Ordering::Acquire) == 0 || self.left() != before {
                break;
            }
            park::nap(round);
        }
        self.left() != before
    }
}
