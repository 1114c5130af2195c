//! The slot table of a device: the product's own.
//!
//! With the feature `designs` it may also be one that an experiment or a test brings. A build
//! without it, as the product's, has one design and no branch for others.

use units::Cpu;

#[cfg(feature = "designs")]
use super::brought::AnySlots;
use super::{BitLock, SlotTable};
use crate::engine::Slot;

/// The slot table of a device. A request reaches the product's table without a pointer. The methods
/// are those of [`SlotTable`].
#[cfg_attr(
    feature = "designs",
    expect(clippy::large_enum_variant, reason = "the product's is a part of its engine")
)]
pub(crate) enum Slots {
    Own(BitLock),
    #[cfg(feature = "designs")]
    Other(AnySlots),
}

impl Slots {
    /// Bytes of one slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        match self {
            Slots::Own(_) => BitLock::BYTES,
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.slot_bytes(),
        }
    }

    /// Whether the closures of `load` and `update` run once, and under a lock of their slot.
    pub(crate) fn locks_while_updating(&self) -> bool {
        matches!(self, Slots::Own(_))
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Slots::Own(table) => SlotTable::count(table),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.count(),
        }
    }

    #[inline]
    pub(crate) fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        match self {
            Slots::Own(table) => SlotTable::load(table, cpu, index, read),
            #[cfg(feature = "designs")]
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
            #[cfg(feature = "designs")]
            Slots::Other(other) => other.update(index, next),
        }
    }

    #[inline]
    pub(crate) fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        match self {
            Slots::Own(table) => SlotTable::retire(table, cpu, displaced, free),
            #[cfg(feature = "designs")]
            Slots::Other(other) => other.retire(cpu, displaced, free),
        }
    }

    pub(crate) fn quiesce(&self, mut free: impl FnMut(Slot)) -> bool {
        match self {
            Slots::Own(table) => SlotTable::quiesce(table, &mut free),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.quiesce(&mut free),
        }
    }

    /// Replaces a slot that a dead process left in the memory of the provider, whatever lock of
    /// the product's table it held there. No other thread uses the slot meanwhile.
    pub(crate) fn repair(&self, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        match self {
            Slots::Own(table) => table.repair(index, judge),
            #[cfg(feature = "designs")]
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
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.peek(index),
        }
    }

    #[inline]
    pub(crate) fn next_touched(&self, from: usize, end: usize) -> usize {
        match self {
            Slots::Own(table) => SlotTable::next_touched(table, from, end),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.next_touched(from, end),
        }
    }

    pub(crate) fn touched(&self, end: usize) -> u64 {
        match self {
            Slots::Own(table) => SlotTable::touched(table, end),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.touched(end),
        }
    }

    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        match self {
            Slots::Own(table) => SlotTable::prefetch(table, index),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.prefetch(index),
        }
    }
}
