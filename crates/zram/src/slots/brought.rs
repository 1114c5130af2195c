//! Slot tables that an experiment or a test brings, behind a pointer.

use alloc::boxed::Box;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;

use super::SlotTable;
use crate::engine::Slot;

/// A slot table of any kind, behind a pointer.
pub struct AnySlots(pub(super) Box<dyn Behind>);

/// Makes the table of a device of this many slots, for readers and writers on this many CPUs: see
/// [`SlotTable::new`].
pub type MakeSlots =
    Box<dyn Fn(&dyn MemoryProvider, usize, usize) -> Result<AnySlots, NoMemory> + Send + Sync>;

impl AnySlots {
    /// This table.
    #[must_use]
    pub fn of<T: SlotTable + 'static>(table: T) -> AnySlots {
        AnySlots(Box::new(table))
    }

    /// Makes devices have tables of this kind.
    #[must_use]
    pub fn make<T: SlotTable + 'static>() -> MakeSlots {
        Box::new(|provider, slots, cpus| Ok(AnySlots::of(T::new(provider, slots, cpus)?)))
    }
}

/// The methods of a [`SlotTable`] that a pointer can have.
pub(super) trait Behind: Send + Sync {
    fn slot_bytes(&self) -> usize;
    fn count(&self) -> usize;
    fn load(&self, cpu: Cpu, index: usize, read: &mut dyn FnMut(Slot));
    fn update(
        &self,
        index: usize,
        next: &mut dyn FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot>;
    fn retire(&self, cpu: Cpu, displaced: Slot, free: &mut dyn FnMut(Slot));
    fn quiesce(&self, free: &mut dyn FnMut(Slot)) -> bool;
    fn peek(&self, index: usize) -> Slot;
    fn next_touched(&self, from: usize, end: usize) -> usize;
    fn touched(&self, end: usize) -> u64;
    fn prefetch(&self, index: usize);
}

impl<T: SlotTable> Behind for T {
    fn slot_bytes(&self) -> usize {
        T::BYTES
    }
    fn count(&self) -> usize {
        T::count(self)
    }
    fn load(&self, cpu: Cpu, index: usize, read: &mut dyn FnMut(Slot)) {
        T::load(self, cpu, index, read);
    }
    fn update(
        &self,
        index: usize,
        next: &mut dyn FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        T::update(self, index, next)
    }
    fn retire(&self, cpu: Cpu, displaced: Slot, free: &mut dyn FnMut(Slot)) {
        T::retire(self, cpu, displaced, free);
    }
    fn quiesce(&self, free: &mut dyn FnMut(Slot)) -> bool {
        T::quiesce(self, free)
    }
    fn peek(&self, index: usize) -> Slot {
        T::peek(self, index)
    }
    fn next_touched(&self, from: usize, end: usize) -> usize {
        T::next_touched(self, from, end)
    }
    fn touched(&self, end: usize) -> u64 {
        T::touched(self, end)
    }
    fn prefetch(&self, index: usize) {
        T::prefetch(self, index);
    }
}

/// Calls of a table behind a pointer. They are out of line and take closures whole, so that what a
/// closure names stays in registers where the table is the product's.
impl AnySlots {
    #[cold]
    #[inline(never)]
    pub(super) fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.0.update(index, &mut next)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn retire(&self, cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        self.0.retire(cpu, displaced, &mut free);
    }

    #[cold]
    #[inline(never)]
    pub(super) fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        let mut last = None;
        self.0.load(cpu, index, &mut |slot| last = Some(read(slot)));
        last.expect("a table passes a slot to who loads it")
    }
}
