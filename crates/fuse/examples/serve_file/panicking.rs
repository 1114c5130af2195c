//! A device that panics whatever it is asked to do.

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Plain, Visit};
use units::Cpu;

/// It has the geometry of a RAM disk.
pub struct Panicking(pub Plain);

impl BlockDevice for Panicking {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..self.0.abilities() }
    }

    fn perform(&self, _: Context, _: Operation<'_>) -> Result<(), IoError> {
        panic!("this is part of the test");
    }

    fn extents(&self, _: Cpu, _: u64, _: u64, _: Visit<'_>) -> Result<(), IoError> {
        panic!("this is part of the test");
    }
}
