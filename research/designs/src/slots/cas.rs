//! Ownership taken by compare-and-swap: a busy bit in each slot, spun on without sleeping.
//!
//! Not publication: who reads owns the slot as well, so that what it names can be freed at once by
//! whoever displaces it. Publishing by compare-and-swap alone, and freeing at once, would take
//! objects from under their readers; that is what `epoch` has its bags for.
//!
//! # Why unsafe
//! Objects are freed by what a slot table says.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zram::Slot;
use zram::slots::{SlotTable, Touched};

/// The table: 8 bytes a page.
pub struct Cas {
    words: LazyTable<AtomicU64>,
    touched: Touched,
}

// SAFETY: who swaps a word owns it, and so does a reader until it has read; a displaced slot is
// freed once, after that.
unsafe impl SlotTable for Cas {
    const NAME: &'static str = "cas";
    const BYTES: usize = 8;

    fn new(provider: &dyn MemoryProvider, slots: usize, _cpus: usize) -> Result<Cas, NoMemory> {
        Ok(Cas { words: LazyTable::new(provider, slots)?, touched: Touched::new(provider, slots)? })
    }

    fn count(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn load<R>(&self, _cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let word = self.words.get(index);
        let slot = sync::own(word);
        let result = read(Slot::from_word(slot));
        sync::disown(word, slot);
        result
    }

    #[inline]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.touched.mark(index);
        let word = self.words.get(index);
        let old = sync::own(word);
        let new = next(Slot::from_word(old));
        sync::disown(word, new.map_or(old, Slot::word));
        match new {
            Some(_) => Ok(Slot::from_word(old)),
            None => Err(Slot::from_word(old)),
        }
    }

    #[inline]
    fn retire(&self, _cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        // Readers own the slot while they read, so nobody has the displaced one any more.
        free(displaced);
    }

    fn peek(&self, index: usize) -> Slot {
        if !self.touched.is_marked(index) {
            return Slot::EMPTY;
        }
        let word = self.words.get(index).load(Ordering::Relaxed);
        Slot::from_word(word & !sync::LOCKED)
    }

    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.touched.next(from, end.min(self.words.len()))
    }

    fn touched(&self, end: usize) -> u64 {
        self.touched.slots(end.min(self.words.len()))
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        sync::prefetch(self.words.address_of(index));
    }
}
