//! A thread takes a slot by compare-and-swap of its busy bit. Other threads spin and never sleep.
//!
//! A reader owns the slot, too. So the writer that displaces an object frees it at once. In `epoch`
//! a reader owns nothing, so displaced objects must wait in queues.
//!
//! # Why unsafe
//! The slot table decides when an object is freed.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zram::Slot;
use zram::slots::{SlotTable, Touched};

use crate::locks;

/// The table: 8 bytes a page.
pub struct Cas {
    words: LazyTable<AtomicU64>,
    touched: Touched,
}

// SAFETY: a writer owns the word that it swaps, and a reader owns it until it has read. A displaced
// slot is freed once, after that.
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
        let slot = locks::own(word);
        let result = read(Slot::from_word(slot));
        locks::disown(word, slot);
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
        let old = locks::own(word);
        let new = next(Slot::from_word(old));
        locks::disown(word, new.map_or(old, Slot::word));
        match new {
            Some(_) => Ok(Slot::from_word(old)),
            None => Err(Slot::from_word(old)),
        }
    }

    #[inline]
    fn retire(&self, _cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        // A reader owns the slot while it reads, so no reader holds the displaced slot now.
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
