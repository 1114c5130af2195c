//! A RAM disk in a region of memory.

use std::thread::sleep;
use std::time::Duration;

use block::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Visit,
};
use pagealloc::Region;
use units::{Cpu, PAGE_SIZE};

pub struct Disk {
    /// All of it is committed.
    pub region: Region,
    pub bytes: usize,
    /// How long an operation takes.
    pub pause: Duration,
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        let bytes = self.bytes as u64;
        Geometry { bytes, minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { flush: true, ..Abilities::default() }
    }

    fn perform(&self, _: Context, operation: Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        let at = self.region.base().as_ptr().wrapping_add(offset as usize);
        let half = length as usize / 2;
        // A write is done in two halves, so that a kill may come between them.
        // SAFETY: the range lies within the device, which `Checked` has checked, and so within the
        // region. Users that write to a page at the same time get any mixture of their bytes, as
        // from a disk.
        unsafe {
            match operation {
                Operation::Read { into, .. } => at.copy_to(into.as_mut_ptr(), into.len()),
                Operation::Write { from, .. } => {
                    at.copy_from(from.as_ptr(), half);
                    sleep(self.pause);
                    at.add(half).copy_from(from[half..].as_ptr(), from.len() - half);
                }
                Operation::Discard { .. } | Operation::WriteZeroes { .. } => {
                    at.write_bytes(0, length as usize);
                }
                Operation::Flush => {}
            }
        }
        sleep(self.pause);
        Ok(())
    }

    fn extents(&self, _: Cpu, _: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let _ = visit(Extent { length, kind: ExtentKind::Data });
        Ok(())
    }
}
