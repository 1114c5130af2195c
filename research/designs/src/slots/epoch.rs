//! No lock: readers enter, writers publish by one compare-and-swap, and what was displaced waits
//! until no reader can hold it.
//!
//! A reader counts itself on its CPU and looks at the word once; it waits for nobody. An object
//! that is displaced meanwhile stays as it was, because objects are never modified, until the
//! reader has left. Displaced objects wait in bags of the CPUs ([`sync::Retired`]). Slots that
//! name no object wait for nobody: patterns are in the slot itself, and blocks of a backing device
//! have readers of their own.
//!
//! # Why unsafe
//! Objects are freed by what a slot table says.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::Retired;
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;
use zram::slots::{SlotTable, Touched};
use zram::{Kind, Slot};

/// Objects of a CPU that may wait: at most 512 KiB of memory. Under shuttle so few that bags come
/// full in small models.
const BAG: usize = if cfg!(shuttle) { 4 } else { 128 };

/// The table: 8 bytes a page, and a bag for each CPU.
pub struct Epoch {
    words: LazyTable<AtomicU64>,
    touched: Touched,
    retired: Retired,
}

// SAFETY: words are swapped by one instruction, and a displaced slot that names an object is freed
// once, by `Retired`, when no reader from before can hold it.
unsafe impl SlotTable for Epoch {
    const NAME: &'static str = "epoch";
    const BYTES: usize = 8;

    fn new(provider: &dyn MemoryProvider, slots: usize, cpus: usize) -> Result<Epoch, NoMemory> {
        Ok(Epoch {
            words: LazyTable::new(provider, slots)?,
            touched: Touched::new(provider, slots)?,
            retired: Retired::new(cpus, BAG),
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
        // Acquire pairs with the Release in `update`: what the slot names has been written.
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
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let Some(new) = next(Slot::from_word(old)) else { return Err(Slot::from_word(old)) };
            // Release pairs with the Acquire in `load`; Acquire with the Release of the writer
            // before, whose object is about to be freed.
            let swapped =
                word.compare_exchange_weak(old, new.word(), Ordering::AcqRel, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(Slot::from_word(old)),
                Err(now) => old = now,
            }
        }
    }

    #[inline]
    fn retire(&self, cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        match displaced.kind() {
            Kind::Empty | Kind::SameFilled(_) | Kind::WrittenBack(_) => free(displaced),
            Kind::Stored(_) => {
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
