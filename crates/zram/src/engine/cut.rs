//! A cut: what the pages were at one instant, while others change them.
//!
//! Objects are write-once, so the contents that a page had are in the slot that it had. From the
//! instant on, whoever gives a page other contents hands the slot over to the cut instead of
//! freeing what it names, unless the cut has passed the page or has a slot of it. A change of the
//! form alone (compaction, recompression, packing, writeback) hands nothing over: the page still
//! has its contents.
//!
//! # Invariants
//! * A page that the cut has not passed has its contents of the instant in the cut if there is a
//!   slot of it there, and in the slot table if there is none.
//! * What a slot in the cut names is freed once: by whoever takes the slot out of the cut.
//! * Slots are handed over, and pages are passed, under the lock of the page's slot.
//! * Every change that began after `Engine::begin_cut` returned finds the cut.
//!
//! A write never fails because of a cut. If there is no room, the cut breaks: it gives up what it
//! has, and nothing can be read from it any more.

use core::ops::Range;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::engine::slot::{SLOT_BITS, Slot};

/// Marks a word that was handed over: an empty slot is a word, too.
const HANDED: u64 = 1 << SLOT_BITS;

/// The cut of a device. It is published in its engine.
pub(crate) struct Cut {
    /// The pages of the device at the instant.
    pages: Range<usize>,
    /// The slots that were handed over.
    slots: LazyTable<AtomicU64>,
    /// The pages below were passed.
    passed: AtomicUsize,
    /// Slots in it that name something.
    holds: AtomicUsize,
    is_broken: AtomicBool,
}

impl Cut {
    /// A cut of these pages. Slots take memory when they are handed over.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(super) fn new(memory: &dyn MemoryProvider, pages: Range<usize>) -> Result<Cut, NoMemory> {
        let slots = LazyTable::provided(memory, pages.len().max(1))?;
        let (passed, holds) = (AtomicUsize::new(pages.start), AtomicUsize::new(0));
        Ok(Cut { pages, slots, passed, holds, is_broken: AtomicBool::new(false) })
    }

    /// All its pages.
    pub(super) fn pages(&self) -> Range<usize> {
        self.pages.clone()
    }

    /// The place of the slot of a page.
    fn place(&self, index: usize) -> &AtomicU64 {
        self.slots.get(index - self.pages.start)
    }

    /// The pages that were not passed a moment ago.
    pub(super) fn left(&self) -> Range<usize> {
        self.passed.load(Ordering::Relaxed)..self.pages.end
    }

    /// Passes a page. Returns its slot, if that was handed over. Called under the lock of the slot,
    /// or for one that was never written.
    pub(super) fn pass(&self, index: usize) -> Option<Slot> {
        self.passed.store(index + 1, Ordering::Relaxed);
        self.take(index)
    }

    /// The slot of a page that was handed over, as it was a moment ago.
    pub(super) fn peek(&self, index: usize) -> Slot {
        match self.place(index).load(Ordering::Relaxed) {
            0 => Slot::EMPTY,
            word => Slot::from_word(word & !HANDED),
        }
    }

    /// Whether it keeps anything in memory.
    pub(super) fn holds_something(&self) -> bool {
        self.holds.load(Ordering::Relaxed) != 0
    }

    /// Gives it up for want of room. The caller takes all slots out afterwards.
    pub(super) fn break_up(&self) {
        // Release pairs with the Acquire in `is_broken`: who finds a slot taken out finds this.
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether it was given up for want of room. Looked at after pages were passed, it says whether
    /// their contents count.
    pub(crate) fn is_broken(&self) -> bool {
        // Acquire pairs with the Release in `break_up`, by way of the words that it takes out.
        self.is_broken.load(Ordering::Acquire)
    }

    /// Takes the slot of a page that is displaced, if it is wanted. Called under its lock.
    pub(super) fn hand_over(&self, index: usize, old: Slot) -> bool {
        let is_left = self.left().contains(&index);
        if !is_left || self.is_broken() {
            return false;
        }
        let place = self.place(index);
        if place.load(Ordering::Relaxed) != 0 {
            return false;
        }
        if old.names_something() {
            self.holds.fetch_add(1, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `take`: the slot's object has been written.
        place.store(old.settled().word() | HANDED, Ordering::Release);
        true
    }

    /// Takes the slot of a page out, if it was handed over. The caller gives up what it names.
    pub(super) fn take(&self, index: usize) -> Option<Slot> {
        let place = self.place(index);
        if place.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Acquire pairs with the Release in `hand_over`, and with that of another who has taken it
        // out: then this thread finds that the cut is broken.
        let word = place.swap(0, Ordering::AcqRel);
        let slot = (word != 0).then(|| Slot::from_word(word & !HANDED))?;
        if slot.names_something() {
            self.holds.fetch_sub(1, Ordering::Relaxed);
        }
        Some(slot)
    }
}
