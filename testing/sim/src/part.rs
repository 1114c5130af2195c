//! A part of a device as a device.

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use units::Cpu;

/// A part of a device. Several parts of one device can each have a model.
pub struct Part<'a> {
    whole: &'a dyn BlockDevice,
    start: u64,
    bytes: u64,
}

impl Part<'_> {
    /// The part of `bytes` bytes of `whole` from `start`. Both numbers are multiples of the page
    /// size.
    #[must_use]
    pub fn new(whole: &dyn BlockDevice, start: u64, bytes: u64) -> Part<'_> {
        Part { whole, start, bytes }
    }
}

impl BlockDevice for Part<'_> {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, ..self.whole.geometry() }
    }

    fn abilities(&self) -> Abilities {
        self.whole.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let moved = match operation {
            Operation::Read { offset, into } => {
                Operation::Read { offset: self.start + offset, into }
            }
            Operation::Write { offset, from } => {
                Operation::Write { offset: self.start + offset, from }
            }
            Operation::Discard { offset, length } => {
                Operation::Discard { offset: self.start + offset, length }
            }
            Operation::WriteZeroes { offset, length, mode } => {
                Operation::WriteZeroes { offset: self.start + offset, length, mode }
            }
            Operation::Flush => Operation::Flush,
        };
        self.whole.perform(context, moved)
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.whole.extents(cpu, self.start + offset, length, visit)
    }
}
