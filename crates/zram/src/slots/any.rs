//! The slot table of a device: the product's own, or one that an experiment or a test brings.

use alloc::boxed::Box;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;

use super::{BitLock, SlotTable};
use crate::engine::Slot;

/// A slot table of any kind, behind a pointer.
pub struct AnySlots(Box<dyn Behind>);

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
trait Behind: Send + Sync {
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

/// The slot table of a device. A request reaches the product's table without a pointer. The methods
/// are those of [`SlotTable`].
#[expect(clippy::large_enum_variant, reason = "the product's is a part of its engine")]
pub(crate) enum Slots {
    Own(BitLock),
    Other(AnySlots),
}

impl Slots {
    /// The table of either kind.
    fn any(&self) -> &dyn Behind {
        match self {
            Slots::Own(table) => table,
            Slots::Other(AnySlots(table)) => &**table,
        }
    }

    /// Bytes of one slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.any().slot_bytes()
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Slots::Own(table) => SlotTable::count(table),
            Slots::Other(AnySlots(other)) => other.count(),
        }
    }

    #[inline]
    pub(crate) fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        match self {
            Slots::Own(table) => SlotTable::load(table, cpu, index, read),
            Slots::Other(other) => other.load(cpu, index, read),
        }
    }

    #[inline]
    pub(crate) fn update(
        &self,
        index: usize,
        next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        match self {
            Slots::Own(table) => SlotTable::update(table, index, next),
            Slots::Other(other) => other.update(index, next),
        }
    }

    #[inline]
    pub(crate) fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        match self {
            Slots::Own(table) => SlotTable::retire(table, cpu, displaced, free),
            Slots::Other(other) => other.retire(cpu, displaced, free),
        }
    }

    pub(crate) fn quiesce(&self, mut free: impl FnMut(Slot)) -> bool {
        self.any().quiesce(&mut free)
    }

    /// Replaces a slot that a dead process left in the memory of the provider, whatever lock of
    /// the product's table it held there. No other thread uses the slot meanwhile.
    pub(crate) fn repair(&self, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        match self {
            Slots::Own(table) => table.repair(index, judge),
            Slots::Other(_) => {
                let right = judge(self.peek(index));
                let _ = self.update(index, |_| Some(right));
            }
        }
    }

    #[inline]
    pub(crate) fn peek(&self, index: usize) -> Slot {
        match self {
            Slots::Own(table) => SlotTable::peek(table, index),
            Slots::Other(AnySlots(other)) => other.peek(index),
        }
    }

    #[inline]
    pub(crate) fn next_touched(&self, from: usize, end: usize) -> usize {
        match self {
            Slots::Own(table) => SlotTable::next_touched(table, from, end),
            Slots::Other(AnySlots(other)) => other.next_touched(from, end),
        }
    }

    pub(crate) fn touched(&self, end: usize) -> u64 {
        self.any().touched(end)
    }

    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        match self {
            Slots::Own(table) => SlotTable::prefetch(table, index),
            Slots::Other(AnySlots(other)) => other.prefetch(index),
        }
    }
}

/// Calls of a table behind a pointer. They are out of line and take closures whole, so that what a
/// closure names stays in registers where the table is the product's.
impl AnySlots {
    #[cold]
    #[inline(never)]
    fn update(
        &self,
        index: usize,
        mut next: impl FnMut(Slot) -> Option<Slot>,
    ) -> Result<Slot, Slot> {
        self.0.update(index, &mut next)
    }

    #[cold]
    #[inline(never)]
    fn retire(&self, cpu: Cpu, displaced: Slot, mut free: impl FnMut(Slot)) {
        self.0.retire(cpu, displaced, &mut free);
    }

    #[cold]
    #[inline(never)]
    fn load<R>(&self, cpu: Cpu, index: usize, mut read: impl FnMut(Slot) -> R) -> R {
        let mut last = None;
        self.0.load(cpu, index, &mut |slot| last = Some(read(slot)));
        last.expect("a table passes a slot to who loads it")
    }
}
