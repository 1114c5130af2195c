//! A device that would have to wait at some of its pages.

use std::thread;

use block::{
    Abilities, BlockDevice, Checked, Context, Geometry, IoError, Operation, Plain, Visit, Wait,
};
use units::{Cpu, PAGE_SIZE};

/// A RAM disk. A request to a page whose bit is set in `blocks` would block, and takes a while on a
/// thread that may wait.
pub struct Blocking {
    plain: Checked<Plain>,
    blocks: u64,
}

impl Blocking {
    pub fn new(bytes: usize, blocks: u64) -> Blocking {
        Blocking { plain: Checked::new(Plain::new(bytes)), blocks }
    }

    /// Would a request to this range have to wait?
    pub fn blocks(&self, offset: u64, length: u64) -> bool {
        let pages =
            offset / PAGE_SIZE as u64..offset.saturating_add(length).div_ceil(PAGE_SIZE as u64);
        pages.take(64).any(|page| self.blocks >> (page % 64) & 1 != 0)
    }
}

impl BlockDevice for Blocking {
    fn geometry(&self) -> Geometry {
        self.plain.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.plain.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        if self.blocks(offset, length) {
            match context.wait {
                Wait::No => return Err(IoError::WouldBlock),
                // Others come first.
                Wait::Yes => (0..4).for_each(|_| thread::yield_now()),
            }
        }
        self.plain.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.plain.extents(cpu, offset, length, visit)
    }
}
