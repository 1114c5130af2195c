//! The windows of clones: each clone has a part of the slots of the engine of its origin, behind
//! those of the origin.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Mutex, OnceLock};

use crate::counts::Counts;
use crate::engine::kept_windows::{ALIGNED, KeptWindows, LeftWindow};
use crate::slots::Slots;

/// The windows of the clones of one origin. Any number of threads may call every method at once.
pub(crate) struct Windows {
    /// In the order of their slots.
    all: Mutex<Vec<Window>>,
    /// The first slot of the first window; `usize::MAX` without one.
    start: AtomicUsize,
    /// The slot behind the last window; 0 without one.
    end: AtomicUsize,
    /// What another process finds of them, from the first clone of a device on that outlives its
    /// process.
    kept: OnceLock<KeptWindows>,
}

struct Window {
    pages: Range<usize>,
    counts: Arc<Counts>,
    /// The number of the clone; `None` until it is a device.
    id: Option<u32>,
    /// Its entry among the kept windows.
    entry: Option<usize>,
}

impl Default for Windows {
    fn default() -> Windows {
        let (start, end) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        Windows { all: Mutex::new(Vec::new()), start, end, kept: OnceLock::new() }
    }
}

impl Windows {
    /// Lets the windows of clones outlive the process, in `memory`. It may have what another
    /// process left. One thread calls it at a time.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn keep(&self, memory: &dyn MemoryProvider) -> Result<(), NoMemory> {
        if self.kept.get().is_none() {
            let _ = self.kept.set(KeptWindows::new(memory)?);
        }
        Ok(())
    }

    /// The windows that another process left.
    pub(crate) fn left(&self) -> Vec<LeftWindow> {
        self.kept.get().map(KeptWindows::left).unwrap_or_default()
    }

    /// Takes a window as another process left it, which is in no other one.
    pub(crate) fn take_left(&self, slots: &Slots, left: &LeftWindow, counts: Arc<Counts>) {
        let mut all = self.all.lock();
        let at = all.partition_point(|window| window.pages.start < left.pages.start);
        let (id, entry) = (Some(left.id), Some(left.entry));
        all.insert(at, Window { pages: left.pages.clone(), counts, id, entry });
        self.note(slots, &all);
    }

    /// Gives up what another process left of windows that were not taken.
    pub(crate) fn forget_others(&self) {
        let (all, Some(kept)) = (self.all.lock(), self.kept.get()) else { return };
        for left in kept.left() {
            if !all.iter().any(|window| window.entry == Some(left.entry)) {
                kept.set_bytes(left.entry, 0);
            }
        }
    }

    /// Whether another process finds a device in the window that begins with slot `base`.
    pub(crate) fn is_kept(&self, base: usize) -> bool {
        let all = self.all.lock();
        all.iter().any(|window| window.pages.start == base && window.entry.is_some())
    }

    /// Sets the size of the clone in a window for another process, if it is kept: 0 gives it up.
    pub(crate) fn set_bytes(&self, base: usize, bytes: u64) {
        let (mut all, Some(kept)) = (self.all.lock(), self.kept.get()) else { return };
        let Some(window) = all.iter_mut().find(|it| it.pages.start == base) else { return };
        if let Some(entry) = window.entry {
            kept.set_bytes(entry, bytes);
            // Without bytes the entry is free for another clone.
            window.entry = (bytes != 0).then_some(entry);
        }
    }

    /// Takes a window of `pages` pages, the first that is free behind slot `from` and before slot
    /// `end`, for a clone that counts in `counts`. `None` if there is none, or no memory.
    pub(crate) fn take(
        &self,
        slots: &Slots,
        from: usize,
        end: usize,
        pages: usize,
        counts: Arc<Counts>,
    ) -> Option<Range<usize>> {
        let mut all = self.all.lock();
        all.try_reserve(1).ok()?;
        let (mut at, mut base) = (0, from.checked_next_multiple_of(ALIGNED)?);
        while let Some(next) = all.get(at) {
            if base.checked_add(pages)? <= next.pages.start {
                break;
            }
            (at, base) = (at + 1, base.max(next.pages.end.next_multiple_of(ALIGNED)));
        }
        let taken = base..base.checked_add(pages)?;
        if taken.end > end {
            return None;
        }
        all.insert(at, Window { pages: taken.clone(), counts, id: None, entry: None });
        self.note(slots, &all);
        Some(taken)
    }

    /// Gives a window back, which is empty.
    pub(crate) fn give_back(&self, slots: &Slots, base: usize) {
        let mut all = self.all.lock();
        all.retain(|window| window.pages.start != base);
        self.note(slots, &all);
    }

    /// The pages of the window that begins with slot `base`; none if there is no such window.
    pub(crate) fn at(&self, base: usize) -> Range<usize> {
        let all = self.all.lock();
        let found = all.iter().find(|window| window.pages.start == base);
        found.map_or(base..base, |window| window.pages.clone())
    }

    /// Says which device of how many bytes has a window. From now on another process finds it.
    pub(crate) fn name(&self, base: usize, id: u32, bytes: u64) {
        let mut all = self.all.lock();
        if let Some(window) = all.iter_mut().find(|window| window.pages.start == base) {
            window.id = Some(id);
            window.entry = self.kept.get().and_then(|kept| kept.add(id, &window.pages, bytes));
        }
    }

    /// The names of the clones; `None` without one.
    pub(crate) fn names(&self) -> Option<String> {
        let all = self.all.lock();
        let name = |window: &Window| match window.id {
            Some(id) => format!("zram{id}"),
            None => "one that is being made".into(),
        };
        (!all.is_empty()).then(|| all.iter().map(name).collect::<Vec<_>>().join(", "))
    }

    /// The slots of the origin end before this.
    pub(crate) fn start(&self) -> usize {
        self.start.load(Ordering::Relaxed)
    }

    /// The slot behind the last window; 0 without one.
    pub(crate) fn end(&self) -> usize {
        // Acquire pairs with the Release in `note`: who walks to this end knows whose slots are
        // there.
        self.end.load(Ordering::Acquire)
    }

    /// Whether a slot is before all windows.
    #[inline]
    pub(crate) fn is_of_origin(&self, index: usize) -> bool {
        // Relaxed: who has a slot of a window has got it from a device that was published later.
        index < self.start()
    }

    /// Calls `f` with the counters of the clone that has a slot.
    pub(crate) fn with_counts(&self, index: usize, f: impl FnOnce(&Counts)) {
        let all = self.all.lock();
        let at = all.partition_point(|window| window.pages.end <= index);
        if let Some(window) = all.get(at).filter(|window| window.pages.contains(&index)) {
            f(&window.counts);
        }
    }

    /// Whether a slot is in a window.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.all.lock().iter().any(|window| window.pages.contains(&index))
    }

    /// Calls `look` with the counters of each clone.
    pub(crate) fn each(&self, mut look: impl FnMut(&Counts)) {
        self.all.lock().iter().for_each(|window| look(&window.counts));
    }

    fn note(&self, slots: &Slots, all: &[Window]) {
        let start = all.first().map_or(usize::MAX, |window| window.pages.start);
        slots.clones_begin_at(start);
        self.start.store(start, Ordering::Relaxed);
        // Release pairs with the Acquire in `end`.
        self.end.store(all.last().map_or(0, |window| window.pages.end), Ordering::Release);
    }
}
