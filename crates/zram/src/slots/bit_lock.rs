//! A lock bit in each slot: a waiter spins briefly, then parks.
//!
//! As the kernel's `ZRAM_LOCK` bit (Weijie Yang, "zram: remove global tb_lock with fine grain
//! lock", 2014), but readers and writers sleep instead of spinning on when the holder is slow.
//!
//! # Why unsafe
//! The engine frees the objects that a slot table gives back.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{LOCKED, WAITED, WaitQueues};
use units::Cpu;

use super::{SlotTable, Touched};
use crate::engine::{SLOT_BITS, Slot};

/// The table: 8 bytes a page.
pub struct BitLock {
    words: LazyTable<AtomicU64>,
    touched: Touched,
    queues: WaitQueues,
}

const _: () = assert!(SLOT_BITS <= sync::WORD_BITS);

/// A locked slot. A drop unlocks it, also when a closure panics: the slot is not changed then.
struct Locked<'a> {
    table: &'a BitLock,
    word: &'a AtomicU64,
    index: usize,
    /// The word that the slot gets when it is unlocked; at first the present one.
    next: u64,
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.table.queues.unlock(self.word, self.index, self.next);
    }
}

impl BitLock {
    #[inline]
    fn lock(&self, index: usize) -> Locked<'_> {
        let word = self.words.get(index);
        Locked { table: self, word, index, next: self.queues.lock(word, index) }
    }

    /// Replaces a slot that a dead process left in the memory of the provider, whatever lock it
    /// held there. No other thread uses the slot meanwhile.
    pub(crate) fn repair(&self, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        let word = self.words.get(index);
        let left = word.load(Ordering::Relaxed);
        let right = judge(Slot::from_word(left & !(LOCKED | WAITED))).word();
        if right != left {
            word.store(right, Ordering::Relaxed);
        }
    }
}

// SAFETY: a thread that swaps a word holds its lock. A reader holds the lock until it has read. A
// displaced slot is freed once, after that.
unsafe impl SlotTable for BitLock {
    const NAME: &'static str = "bit-spinlock";
    const BYTES: usize = 8;

    fn new(provider: &dyn MemoryProvider, slots: usize, _cpus: usize) -> Result<BitLock, NoMemory> {
        Ok(BitLock {
            words: LazyTable::new(provider, slots)?,
            touched: Touched::new(provider, slots)?,
            queues: WaitQueues::default(),
        })
    }

    fn count(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn load<R>(&self, _cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let locked = self.lock(index);
        read(Slot::from_word(locked.next))
    }

    #[inline]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.touched.mark(index);
        let mut locked = self.lock(index);
        let old = Slot::from_word(locked.next);
        match next(old) {
            Some(new) => {
                locked.next = new.word();
                Ok(old)
            }
            None => Err(old),
        }
    }

    #[inline]
    fn retire(&self, _cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        // A reader holds the lock while it reads, so no reader holds the displaced slot any more.
        free(displaced);
    }

    fn peek(&self, index: usize) -> Slot {
        if !self.touched.is_marked(index) {
            return Slot::EMPTY;
        }
        let word = self.words.get(index).load(Ordering::Relaxed);
        Slot::from_word(word & !(LOCKED | WAITED))
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
