//! Each slot has its own lock beside it, of one of two kinds.
//!
//! A plain lock is like the spinlock in each entry of the kernel's table of pages, but a waiter
//! spins briefly and then sleeps. Readers exclude each other, too. A reader-writer lock is shared
//! by the readers of a page, and a writer holds it alone.
//!
//! # Why unsafe
//! The slot table decides when an object is freed.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::WaitQueues;
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zram::Slot;
use zram::slots::{SlotTable, Touched};

use crate::locks::SharedWaitQueues;

/// One kind of lock: its state is a word, and its waiters sleep in wait queues.
///
/// # Safety
/// While one thread is between `write` and `end_write`, no other thread is between `write` and
/// `end_write`, or between `read` and `end_read`.
pub unsafe trait WordLock: Default + Send + Sync {
    /// The name of the scheme.
    const NAME: &'static str;
    /// Waits until no thread writes, and keeps writers out.
    fn read(&self, lock: &AtomicU64, key: usize);
    /// Ends what `read` began.
    fn end_read(&self, lock: &AtomicU64, key: usize);
    /// Waits until no other thread holds the lock, and keeps all others out.
    fn write(&self, lock: &AtomicU64, key: usize);
    /// Ends what `write` began.
    fn end_write(&self, lock: &AtomicU64, key: usize);
}

// SAFETY: it is a lock.
unsafe impl WordLock for WaitQueues {
    const NAME: &'static str = "spinlock";

    #[inline]
    fn read(&self, lock: &AtomicU64, key: usize) {
        self.lock(lock, key);
    }
    #[inline]
    fn end_read(&self, lock: &AtomicU64, key: usize) {
        self.unlock(lock, key, 0);
    }
    #[inline]
    fn write(&self, lock: &AtomicU64, key: usize) {
        self.lock(lock, key);
    }
    #[inline]
    fn end_write(&self, lock: &AtomicU64, key: usize) {
        self.unlock(lock, key, 0);
    }
}

// SAFETY: it is a reader-writer lock.
unsafe impl WordLock for SharedWaitQueues {
    const NAME: &'static str = "rwlock";

    #[inline]
    fn read(&self, lock: &AtomicU64, key: usize) {
        SharedWaitQueues::read(self, lock, key);
    }
    #[inline]
    fn end_read(&self, lock: &AtomicU64, key: usize) {
        SharedWaitQueues::end_read(self, lock, key);
    }
    #[inline]
    fn write(&self, lock: &AtomicU64, key: usize) {
        SharedWaitQueues::write(self, lock, key);
    }
    #[inline]
    fn end_write(&self, lock: &AtomicU64, key: usize) {
        SharedWaitQueues::end_write(self, lock, key);
    }
}

/// The scheme `spinlock`.
pub type SpinLock = LockBeside<WaitQueues>;
/// The scheme `rwlock`.
pub type RwLock = LockBeside<SharedWaitQueues>;

/// The table: 16 bytes a page, the slot and its lock side by side.
pub struct LockBeside<L> {
    pairs: LazyTable<[AtomicU64; 2]>,
    touched: Touched,
    queues: L,
}

// SAFETY: a writer holds the lock of a word alone while it swaps the word, and a reader holds or
// shares the lock until it has read. A displaced slot is freed once, after that.
unsafe impl<L: WordLock> SlotTable for LockBeside<L> {
    const NAME: &'static str = L::NAME;
    const BYTES: usize = 16;

    fn new(
        provider: &dyn MemoryProvider,
        slots: usize,
        _cpus: usize,
    ) -> Result<LockBeside<L>, NoMemory> {
        Ok(LockBeside {
            pairs: LazyTable::new(provider, slots)?,
            touched: Touched::new(provider, slots)?,
            queues: L::default(),
        })
    }

    fn count(&self) -> usize {
        self.pairs.len()
    }

    #[inline]
    fn load<R>(&self, _cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let [slot, lock] = self.pairs.get(index);
        self.queues.read(lock, index);
        let result = read(Slot::from_word(slot.load(Ordering::Relaxed)));
        self.queues.end_read(lock, index);
        result
    }

    #[inline]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.touched.mark(index);
        let [slot, lock] = self.pairs.get(index);
        self.queues.write(lock, index);
        let old = slot.load(Ordering::Relaxed);
        let new = next(Slot::from_word(old));
        if let Some(new) = new {
            slot.store(new.word(), Ordering::Relaxed);
        }
        self.queues.end_write(lock, index);
        match new {
            Some(_) => Ok(Slot::from_word(old)),
            None => Err(Slot::from_word(old)),
        }
    }

    #[inline]
    fn retire(&self, _cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        // Readers hold the lock while they read, so no reader holds the displaced slot now.
        free(displaced);
    }

    fn peek(&self, index: usize) -> Slot {
        if !self.touched.is_marked(index) {
            return Slot::EMPTY;
        }
        Slot::from_word(self.pairs.get(index)[0].load(Ordering::Relaxed))
    }

    fn next_touched(&self, from: usize, end: usize) -> usize {
        self.touched.next(from, end.min(self.pairs.len()))
    }

    fn touched(&self, end: usize) -> u64 {
        self.touched.slots(end.min(self.pairs.len()))
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        sync::prefetch(self.pairs.address_of(index));
    }
}
