//! No lock: a reader enters, a writer publishes by one compare-and-swap, and a displaced object
//! waits until no reader can hold it.
//!
//! A reader counts itself on its CPU and loads the word once; it never waits. Objects are never
//! modified, and a displaced object lives until the reader has left. Displaced objects wait in a
//! queue of each CPU ([`sync::Retired`]). A slot without an object does not wait: a same-filled
//! pattern is in the slot itself, and a block of a backing device counts its own readers.
//!
//! # Why unsafe
//! The slot table decides when an object is freed.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::Retired;
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zram::slots::{SlotTable, Touched};
use zram::{Kind, Slot};

/// The most displaced objects that wait on a CPU: at most 512 KiB of memory. Under shuttle the
/// number is small, so that small models fill queues.
const QUEUE: usize = if cfg!(shuttle) { 4 } else { 128 };

/// The table: 8 bytes a page, and a queue for each CPU.
pub struct Epoch {
    words: LazyTable<AtomicU64>,
    touched: Touched,
    retired: Retired,
}

// SAFETY: one instruction swaps a word. `Retired` frees a displaced slot that names an object once,
// when every reader that may hold it has left.
unsafe impl SlotTable for Epoch {
    const NAME: &'static str = "epoch";
    const BYTES: usize = 8;

    fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Epoch, NoMemory> {
        Ok(Epoch {
            words: LazyTable::new(provider, slots)?,
            touched: Touched::new(provider, slots)?,
            retired: Retired::new(cpus, QUEUE),
        })
    }

    fn count(&self) -> usize {
        self.words.len()
    }

    #[inline]
    fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let _reading = self.retired.read(cpu);
        // Acquire pairs with the Release in `update`: the object of the slot has been written.
        let word = self.words.get(index).load(Ordering::Acquire);
        read(Slot::from_word(word))
    }

    #[inline]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.touched.mark(index);
        let word = self.words.get(index);
        // Acquire pairs with the Release of the previous writer: `next` may look at more than the
        // slot.
        let mut old = word.load(Ordering::Acquire);
        loop {
            let Some(new) = next(Slot::from_word(old)) else { return Err(Slot::from_word(old)) };
            // Release pairs with the Acquire in `load`. Acquire pairs with the Release of the
            // previous writer, whose object is about to be freed.
            let swapped =
                word.compare_exchange_weak(old, new.word(), Ordering::AcqRel, Ordering::Acquire);
            match swapped {
                Ok(_) => return Ok(Slot::from_word(old)),
                Err(now) => old = now,
            }
        }
    }

    #[inline]
    fn retire(&self, cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        match displaced.kind() {
            Kind::Empty | Kind::SameFilled(_) | Kind::WrittenBack(_) | Kind::Lost => {
                free(displaced);
            }
            Kind::Stored(_) | Kind::Shared(_) => {
                self.retired.retire(cpu, displaced.word(), |word| free(Slot::from_word(word)));
            }
        }
    }

    fn quiesce(&self, mut free: impl FnMut(Slot)) -> bool {
        self.retired.quiesce(|word| free(Slot::from_word(word)))
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
