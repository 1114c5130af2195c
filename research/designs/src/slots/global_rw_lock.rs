//! One reader-writer lock for the whole table. Experiments measure finer schemes against it.
//!
//! The kernel's `tb_lock` was such a lock until each entry got its own. Readers share it while they
//! decompress. A writer holds it while it swaps one word.
//!
//! # Why unsafe
//! The slot table decides when an object is freed.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::CachePadded;
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zram::Slot;
use zram::slots::{SlotTable, Touched};

use crate::locks::SharedWaitQueues;

/// The table: 8 bytes a page, and one lock.
pub struct GlobalRwLock {
    words: LazyTable<AtomicU64>,
    touched: Touched,
    lock: CachePadded<AtomicU64>,
    queues: SharedWaitQueues,
}

/// The only key of the only lock.
const KEY: usize = 0;

// SAFETY: a writer holds the lock alone while it swaps a word, and a reader shares the lock until
// it has read. A displaced slot is freed once, after that.
unsafe impl SlotTable for GlobalRwLock {
    const NAME: &'static str = "global-rwlock";
    const BYTES: usize = 8;

    fn new(
        provider: &dyn MemoryProvider,
        slots: usize,
        _cpus: usize,
    ) -> Result<GlobalRwLock, NoMemory> {
        Ok(GlobalRwLock {
            words: LazyTable::new(provider, slots)?,
            touched: Touched::new(provider, slots)?,
            lock: CachePadded::new(AtomicU64::new(0)),
            queues: SharedWaitQueues::default(),
        })
    }

    fn count(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn load<R>(&self, _cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        self.queues.read(&self.lock, KEY);
        let result = read(self.peek(index));
        self.queues.end_read(&self.lock, KEY);
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
        self.queues.write(&self.lock, KEY);
        let old = word.load(Ordering::Relaxed);
        let new = next(Slot::from_word(old));
        if let Some(new) = new {
            word.store(new.word(), Ordering::Relaxed);
        }
        self.queues.end_write(&self.lock, KEY);
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
        Slot::from_word(self.words.get(index).load(Ordering::Relaxed))
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
