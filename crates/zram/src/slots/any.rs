//! The slot table of a device: the product's own, and that of its clones behind it.
//!
//! With the feature `designs` it may also be one that an experiment or a test brings. A build
//! without it, as the product's, has one design and no branch for others.

use core::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use sync::OnceLock;
use sync::atomic::{AtomicUsize, Ordering};
use units::Cpu;

#[cfg(feature = "designs")]
use super::brought::AnySlots;
use super::lines::LINE;
use super::{BitLock, Lines, SlotTable};
use crate::engine::Slot;

/// The slots of a device, and of its clones.
pub(crate) struct Own {
    table: BitLock,
    /// The slots of clones from `first` on. It comes with the first clone.
    lines: OnceLock<Lines>,
    /// The slots before are those of the device; `usize::MAX` without a clone.
    first: AtomicUsize,
}

impl Own {
    /// The table of clones, if it has a slot.
    #[inline]
    fn of_clones(&self, index: usize) -> Option<&Lines> {
        // Relaxed: who has a slot of a clone has got it from a device that was published later.
        match index < self.first.load(Ordering::Relaxed) {
            true => None,
            false => self.lines.get(),
        }
    }

    #[inline]
    fn next_touched(&self, from: usize, end: usize) -> usize {
        let first = self.first.load(Ordering::Relaxed);
        let Some(lines) = self.of_clones(end.saturating_sub(1)) else {
            return self.table.next_touched(from, end);
        };
        let found = if from < first { self.table.next_touched(from, first) } else { first };
        if found < first { found } else { lines.next_touched(from.max(first), end) }
    }
}

/// The slot table of a device. A request reaches the product's table without a pointer. The methods
/// are those of [`SlotTable`].
#[cfg_attr(
    feature = "designs",
    expect(clippy::large_enum_variant, reason = "the product's is a part of its engine")
)]
pub(crate) enum Slots {
    Own(Own),
    #[cfg(feature = "designs")]
    Other(AnySlots),
}

impl Slots {
    /// The product's table.
    pub(crate) fn own(table: BitLock) -> Slots {
        Slots::Own(Own { table, lines: OnceLock::new(), first: AtomicUsize::new(usize::MAX) })
    }

    /// Gets ready for clones.
    ///
    /// # Errors
    /// [`NoMemory`] when addresses are out.
    pub(crate) fn expect_clones(&self, provider: &dyn MemoryProvider) -> Result<(), NoMemory> {
        if let Slots::Own(own) = self
            && own.lines.get().is_none()
        {
            let lines = Lines::new(provider, own.table.count(), 0)?;
            // Another thread may have been quicker.
            let _ = own.lines.set(lines);
        }
        Ok(())
    }

    /// From now on the slots from `first` on are those of clones, if they are expected. Slots that
    /// change their table are empty, and nobody stores to them meanwhile.
    pub(crate) fn clones_begin_at(&self, first: usize) {
        match self {
            Slots::Own(own) => own.first.store(first, Ordering::Relaxed),
            #[cfg(feature = "designs")]
            Slots::Other(_) => {}
        }
    }

    /// How many slots of a device, or of a clone, lie in parts that were ever written.
    pub(crate) fn touched(&self, pages: Range<usize>) -> u64 {
        // The parts before them first: others come meanwhile, and none goes.
        let of = |up_to: &dyn Fn(usize) -> u64| {
            let before = up_to(pages.start);
            up_to(pages.end) - before
        };
        match self {
            Slots::Own(own) => match own.of_clones(pages.start) {
                None => of(&|end| own.table.touched(end)),
                Some(lines) => of(&|end| lines.touched(end)),
            },
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => of(&|end| other.touched(end)),
        }
    }

    /// Bytes of memory that they take. What clones take because they were written to counts with
    /// their origin, whose slots begin with 0.
    pub(crate) fn bytes(&self, pages: Range<usize>) -> u64 {
        let start = pages.start;
        let touched = self.touched(pages);
        match self {
            Slots::Own(own) if own.of_clones(start).is_some() => touched * 8 / LINE as u64,
            Slots::Own(own) => {
                let of_clones =
                    own.lines.get().filter(|_| start == 0).map_or(0, Lines::split_bytes);
                touched * BitLock::BYTES as u64 + of_clones as u64
            }
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => touched * other.slot_bytes() as u64,
        }
    }

    /// Whether the closures of `load` and `update` run once, and under a lock of their slot.
    pub(crate) fn locks_while_updating(&self) -> bool {
        matches!(self, Slots::Own(_))
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Slots::Own(own) => own.table.count(),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.count(),
        }
    }

    #[inline]
    pub(crate) fn load<R>(&self, cpu: Cpu, index: usize, read: impl FnMut(Slot) -> R) -> R {
        match self {
            Slots::Own(own) => match own.of_clones(index) {
                None => own.table.load(cpu, index, read),
                Some(lines) => lines.load(cpu, index, read),
            },
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
            Slots::Own(own) => match own.of_clones(index) {
                None => own.table.update(index, next),
                Some(lines) => lines.update(index, next),
            },
            #[cfg(feature = "designs")]
            Slots::Other(other) => other.update(index, next),
        }
    }

    #[inline]
    pub(crate) fn retire(&self, cpu: Cpu, displaced: Slot, free: impl FnMut(Slot)) {
        match self {
            // Both tables have done with it when it is displaced.
            Slots::Own(own) => own.table.retire(cpu, displaced, free),
            #[cfg(feature = "designs")]
            Slots::Other(other) => other.retire(cpu, displaced, free),
        }
    }

    pub(crate) fn quiesce(&self, mut free: impl FnMut(Slot)) -> bool {
        match self {
            Slots::Own(own) => own.table.quiesce(&mut free),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.quiesce(&mut free),
        }
    }

    /// Replaces a slot that a dead process left in the memory of the provider, whatever lock of
    /// the product's table it held there. No other thread uses the slot meanwhile.
    pub(crate) fn repair(&self, index: usize, judge: impl FnOnce(Slot) -> Slot) {
        match self {
            Slots::Own(own) => own.table.repair(index, judge),
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
            Slots::Own(own) => match own.of_clones(index) {
                None => own.table.peek(index),
                Some(lines) => lines.peek(index),
            },
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.peek(index),
        }
    }

    #[inline]
    pub(crate) fn next_touched(&self, from: usize, end: usize) -> usize {
        match self {
            Slots::Own(own) => own.next_touched(from, end),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.next_touched(from, end),
        }
    }

    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        match self {
            Slots::Own(own) => own.table.prefetch(index),
            #[cfg(feature = "designs")]
            Slots::Other(AnySlots(other)) => other.prefetch(index),
        }
    }
}
