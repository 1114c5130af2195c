//! The disks that run under shuttle, of any design.

use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use sync::atomic::{AtomicU64, Ordering};
use units::{Cpu, PAGE_SIZE};
use zram::slots::{AnySlots, SlotTable};

use crate::bench::{Bench, Design, Made, Slots};

/// A disk without a size, on a backing device with this number of blocks.
pub fn make(design: Design, blocks: usize) -> Made {
    let below = Slow(Plain::new(blocks * PAGE_SIZE), AtomicU64::new(0));
    Bench { design, ..Bench::new(Arc::new(below)) }.make()
}

/// The product's design with this slot scheme.
pub fn scheme(slots: Slots) -> Design {
    Design { slots, ..Design::PRODUCT }
}

/// The same with a slot table of this type.
pub fn table<T: SlotTable + 'static>() -> Design {
    scheme((T::NAME, || Some(AnySlots::make::<T>())))
}

/// A device that often lets other threads run before an operation.
struct Slow(Plain, AtomicU64);

impl BlockDevice for Slow {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        for _ in 0..12 {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        self.0.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.0.extents(cpu, offset, length, visit)
    }
}
