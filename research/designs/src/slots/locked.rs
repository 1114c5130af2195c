//! Tables whose readers keep writers out: with a lock for the whole table, with a lock beside each
//! slot, or with a lock in the slot. So a writer frees what it displaces at once.
//!
//! # Why unsafe
//! The slot table decides when an object is freed.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{CachePadded, WaitQueues};
use units::Cpu;
use zram::Slot;
use zram::slots::{SlotTable, Touched};

use crate::locks::{SharedWaitQueues, disown, own};

/// How a table is guarded. Its `WORDS` words for each slot begin with the slot's own.
///
/// # Safety
/// While one thread is between `write` and `end_write` of a slot, no other thread is between
/// `write` and `end_write`, or between `read` and `end_read`, of the same slot.
pub unsafe trait Guard<const WORDS: usize>: Default + Send + Sync {
    /// The name of the scheme.
    const NAME: &'static str;
    /// Waits until no thread writes the slot, and keeps writers out. Returns the slot. Without a
    /// way for readers to share it, they exclude each other, too.
    #[inline]
    fn read(&self, words: &[AtomicU64; WORDS], index: usize) -> u64 {
        self.write(words, index)
    }
    /// Ends what `read` began, which returned `slot`.
    #[inline]
    fn end_read(&self, words: &[AtomicU64; WORDS], index: usize, slot: u64) {
        self.end_write(words, index, slot);
    }
    /// Waits until no other thread has the slot, and keeps all others out. Returns the slot.
    fn write(&self, words: &[AtomicU64; WORDS], index: usize) -> u64;
    /// Ends what `write` began; the slot is `slot` now.
    fn end_write(&self, words: &[AtomicU64; WORDS], index: usize, slot: u64);
}

/// `global-rwlock`: a reader-writer lock for the whole table, with which experiments compare finer
/// schemes. The kernel's `tb_lock` was such a lock until each entry got its own. Readers share it
/// while they decompress; a writer holds it while it swaps one word.
#[derive(Default)]
pub struct Global {
    lock: CachePadded<AtomicU64>,
    queues: SharedWaitQueues,
}

/// The only key of the only lock.
const KEY: usize = 0;

// SAFETY: it is a reader-writer lock, and there is no other.
unsafe impl Guard<1> for Global {
    const NAME: &'static str = "global-rwlock";

    #[inline]
    fn read(&self, [slot]: &[AtomicU64; 1], _: usize) -> u64 {
        self.queues.read(&self.lock, KEY);
        slot.load(Ordering::Relaxed)
    }
    #[inline]
    fn end_read(&self, _: &[AtomicU64; 1], _: usize, _: u64) {
        self.queues.end_read(&self.lock, KEY);
    }
    #[inline]
    fn write(&self, [slot]: &[AtomicU64; 1], _: usize) -> u64 {
        self.queues.write(&self.lock, KEY);
        slot.load(Ordering::Relaxed)
    }
    #[inline]
    fn end_write(&self, [word]: &[AtomicU64; 1], _: usize, slot: u64) {
        word.store(slot, Ordering::Relaxed);
        self.queues.end_write(&self.lock, KEY);
    }
}

/// `spinlock`: as in each entry of the kernel's table of pages, but a waiter spins briefly and then
/// sleeps. Readers exclude each other, too.
pub type Beside = WaitQueues;

// SAFETY: it is a lock of each slot.
unsafe impl Guard<2> for Beside {
    const NAME: &'static str = "spinlock";

    #[inline]
    fn end_read(&self, [_, lock]: &[AtomicU64; 2], index: usize, _: u64) {
        self.unlock(lock, index, 0);
    }
    #[inline]
    fn write(&self, [slot, lock]: &[AtomicU64; 2], index: usize) -> u64 {
        self.lock(lock, index);
        slot.load(Ordering::Relaxed)
    }
    #[inline]
    fn end_write(&self, [word, lock]: &[AtomicU64; 2], index: usize, slot: u64) {
        word.store(slot, Ordering::Relaxed);
        self.unlock(lock, index, 0);
    }
}

// SAFETY: it is a reader-writer lock of each slot.
unsafe impl Guard<2> for SharedWaitQueues {
    const NAME: &'static str = "rwlock";

    #[inline]
    fn read(&self, [slot, lock]: &[AtomicU64; 2], index: usize) -> u64 {
        SharedWaitQueues::read(self, lock, index);
        slot.load(Ordering::Relaxed)
    }
    #[inline]
    fn end_read(&self, [_, lock]: &[AtomicU64; 2], index: usize, _: u64) {
        SharedWaitQueues::end_read(self, lock, index);
    }
    #[inline]
    fn write(&self, [slot, lock]: &[AtomicU64; 2], index: usize) -> u64 {
        SharedWaitQueues::write(self, lock, index);
        slot.load(Ordering::Relaxed)
    }
    #[inline]
    fn end_write(&self, [word, lock]: &[AtomicU64; 2], index: usize, slot: u64) {
        word.store(slot, Ordering::Relaxed);
        SharedWaitQueues::end_write(self, lock, index);
    }
}

/// `cas`: a thread takes a slot by compare-and-swap of its busy bit. Other threads spin and never
/// sleep. A reader owns the slot, too: in `epoch` it owns nothing.
#[derive(Default)]
pub struct Busy;

// SAFETY: a thread owns the word from `own` to `disown`.
unsafe impl Guard<1> for Busy {
    const NAME: &'static str = "cas";

    #[inline]
    fn write(&self, [word]: &[AtomicU64; 1], _: usize) -> u64 {
        own(word)
    }
    #[inline]
    fn end_write(&self, [word]: &[AtomicU64; 1], _: usize, slot: u64) {
        disown(word, slot);
    }
}

/// The scheme `global-rwlock`: 8 bytes a page.
pub type GlobalRwLock = Locked<Global, 1>;
/// The scheme `cas`: 8 bytes a page.
pub type Cas = Locked<Busy, 1>;
/// The scheme `spinlock`: 16 bytes a page.
pub type SpinLock = Locked<Beside, 2>;
/// The scheme `rwlock`: 16 bytes a page.
pub type RwLock = Locked<SharedWaitQueues, 2>;

/// A table of slots, each with the words of its guard.
pub struct Locked<G, const WORDS: usize> {
    slots: LazyTable<[AtomicU64; WORDS]>,
    touched: Touched,
    guard: G,
}

// SAFETY: a writer has a slot alone while it swaps the word; a reader keeps writers out until it
// has read. A displaced slot is freed once, after that.
unsafe impl<G: Guard<WORDS>, const WORDS: usize> SlotTable for Locked<G, WORDS> {
    const NAME: &'static str = G::NAME;
    const BYTES: usize = 8 * WORDS;

    fn new(provider: &dyn MemoryProvider, slots: usize, _cpus: usize) -> Result<Self, NoMemory> {
        Ok(Locked {
            slots: LazyTable::new(provider, slots)?,
            touched: Touched::new(provider, slots)?,
            guard: G::default(),
        })
    }

    fn count(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn load<R>(&self, _cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let words = self.slots.get(index);
        let slot = self.guard.read(words, index);
        let result = read(Slot::from_word(slot));
        self.guard.end_read(words, index, slot);
        result
    }

    #[inline]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.touched.mark(index);
        let words = self.slots.get(index);
        let old = self.guard.write(words, index);
        let new = next(Slot::from_word(old));
        self.guard.end_write(words, index, new.map_or(old, Slot::word));
        match new {
            Some(_) => Ok(Slot::from_word(old)),
            None => Err(Slot::from_word(old)),
        }
    }

    #[inline]
    fn retire(&self, _cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        // Readers keep writers out, so no reader has the displaced slot now.
        free(displaced);
    }

    fn peek(&self, index: usize) -> Slot {
        if !self.touched.is_marked(index) {
            return Slot::EMPTY;
        }
        // Under `cas` somebody may own the word.
        let word = self.slots.get(index)[0].load(Ordering::Relaxed);
        Slot::from_word(word & !sync::LOCKED)
    }

    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.touched.next(from, end.min(self.slots.len()))
    }

    fn touched(&self, end: usize) -> u64 {
        self.touched.slots(end.min(self.slots.len()))
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        sync::prefetch(self.slots.address_of(index));
    }
}
