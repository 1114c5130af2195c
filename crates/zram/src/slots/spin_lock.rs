//! A lock of its own beside each slot: spins briefly, then parks.
//!
//! As the kernel's table of pages with a spinlock in each entry, but who waits sleeps when the
//! holder is slow. Readers exclude each other as well.

use pagealloc::{LazyTable, NoMemory, World};
use sync::Rooms;
use sync::atomic::{AtomicU64, Ordering};
use units::Lane;

use super::{SlotTable, Touched};
use crate::Slot;

/// The table: 16 bytes a page, the slot and its lock side by side.
pub struct SpinLock {
    pairs: LazyTable<[AtomicU64; 2]>,
    touched: Touched,
    rooms: Rooms,
}

impl SlotTable for SpinLock {
    const NAME: &'static str = "spinlock";
    const BYTES: usize = 16;

    fn new(world: &dyn World, slots: usize, _lanes: usize) -> Result<SpinLock, NoMemory> {
        Ok(SpinLock {
            pairs: LazyTable::new(world, slots)?,
            touched: Touched::new(world, slots)?,
            rooms: Rooms::default(),
        })
    }

    fn count(&self) -> usize {
        self.pairs.len()
    }

    #[inline]
    fn load<R>(&self, _lane: Lane, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        if !self.touched.is_marked(index) {
            return read(Slot::EMPTY);
        }
        let [slot, lock] = self.pairs.get(index);
        self.rooms.lock(lock, index);
        let result = read(Slot::from_word(slot.load(Ordering::Relaxed)));
        self.rooms.unlock(lock, index, 0);
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
        self.rooms.lock(lock, index);
        let old = slot.load(Ordering::Relaxed);
        let new = next(Slot::from_word(old));
        if let Some(new) = new {
            slot.store(new.word(), Ordering::Relaxed);
        }
        self.rooms.unlock(lock, index, 0);
        match new {
            Some(_) => Ok(Slot::from_word(old)),
            None => Err(Slot::from_word(old)),
        }
    }

    #[inline]
    fn retire(&self, _lane: Lane, displaced: Slot, mut free: impl FnMut(Slot)) {
        // Readers hold the lock while they read, so nobody has the displaced slot any more.
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
