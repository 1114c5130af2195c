//! The changes that a commit makes to the gauges, and what the tables take.

use core::ops::Range;

use objects::{ENTRY_BYTES, Object};
use units::Cpu;

use super::Engine;
use crate::counts::{Count, Counts};
use crate::disk::Density;
use crate::engine::access::{TIME_BYTES, WITH_ONE_TIME};
use crate::engine::page_ops::By;
use crate::engine::slot::{Kind, Slot};

impl Engine {
    /// Adds the difference between the old and the new slot of a page to the gauges of the device
    /// that has the page.
    #[inline]
    pub(super) fn account(&self, By { cpu, counts }: By<'_>, index: usize, old: Slot, new: Slot) {
        match counts {
            Some(counts) => account_in(counts, cpu, old, new),
            None => self.with_counts(index, |counts| account_in(counts, cpu, old, new)),
        }
    }

    /// A huge page was counted twice as stored.
    pub(super) fn uncount_huge(&self, cpu: Cpu, index: usize) {
        self.with_counts(index, |counts| counts.add(cpu, Count::HugePagesSince, -1));
    }

    /// Calls `f` with the counters of the device that has a page.
    fn with_counts(&self, index: usize, f: impl FnOnce(&Counts)) {
        match self.windows.is_of_origin(index) {
            true => f(&self.counts),
            false => self.windows.with_counts(index, f),
        }
    }
}

#[inline]
fn account_in(counts: &Counts, cpu: Cpu, old: Slot, new: Slot) {
    let add = |which, amount| {
        if amount != 0 {
            counts.add(cpu, which, amount);
        }
    };
    let (was, is) = (Shape::of(old), Shape::of(new));
    add(Count::ComprBytes, is.bytes - was.bytes);
    add(Count::PagesStored, is.stored - was.stored);
    add(Count::SamePages, is.same - was.same);
    add(Count::ZeroPages, is.zero - was.zero);
    add(Count::HugePages, is.huge - was.huge);
    // A page that is shared was stored before.
    add(Count::HugePagesSince, if is.shared == 0 { is.huge } else { 0 });
    add(Count::WrittenBackPages, is.backed - was.backed);
    add(Count::LostPages, is.lost - was.lost);
    add(Count::PackedPages, is.packed - was.packed);
    add(Count::SharedPages, is.shared - was.shared);
}

impl Engine {
    /// Bytes of memory that the tables of these pages take now; with the first page also the table
    /// of shared objects.
    pub(crate) fn table_bytes(&self, pages: Range<usize>) -> u64 {
        let touched = self.slots.touched(pages.clone());
        let times = match &self.accesses {
            None => 0,
            Some(times) => match self.windows.is_of_origin(pages.start) {
                false if times.has_those_of_clones() => touched * TIME_BYTES / WITH_ONE_TIME as u64,
                _ => touched * TIME_BYTES,
            },
        };
        let shared = match pages.start {
            0 => u64::from(self.shared.ever_used()) * ENTRY_BYTES,
            _ => 0,
        };
        self.slots.bytes(pages) + times + shared
    }

    /// Adds what the table of shared objects says to the statistics of packing and sharing.
    pub(crate) fn add_up(&self, density: &mut Density) {
        self.shared.each(|_, shared, references| {
            let bytes = shared.object.bytes() as u64;
            if shared.pages > 1 {
                let gone = (shared.pages as u64).saturating_sub(references);
                density.extents += 1;
                density.extent_bytes += bytes;
                density.wasted_bytes += bytes * gone / shared.pages as u64;
            } else {
                let slot = self.pool().slot_bytes(shared.object.bytes()) as u64;
                density.shared_objects += 1;
                density.saved_bytes += references.saturating_sub(1) * slot;
            }
        });
    }
}

/// The share of one slot in the gauges.
#[derive(Default)]
struct Shape {
    bytes: i64,
    stored: i64,
    same: i64,
    zero: i64,
    huge: i64,
    backed: i64,
    lost: i64,
    packed: i64,
    shared: i64,
}

impl Shape {
    #[inline]
    fn of(slot: Slot) -> Shape {
        let (bytes, same, zero, huge, backed) = match slot.kind() {
            Kind::Empty => return Shape::default(),
            Kind::Lost => return Shape { stored: 1, lost: 1, ..Shape::default() },
            Kind::SameFilled(pattern) => (0, 1, i64::from(pattern == 0), 0, 0),
            Kind::Stored(object) => {
                let same = matches!(object, Object::SameFilled(_));
                let huge = matches!(object, Object::Huge(_));
                (object.bytes() as i64, i64::from(same), 0, i64::from(huge), 0)
            }
            Kind::WrittenBack(_) => (0, 0, 0, 0, 1),
            // The bytes of the object count with its entry.
            Kind::Shared(part) => {
                let (packed, huge) = (i64::from(part.packed), i64::from(part.huge));
                return Shape { stored: 1, huge, packed, shared: 1 - packed, ..Shape::default() };
            }
        };
        Shape { bytes, stored: 1, same, zero, huge, backed, ..Shape::default() }
    }
}
