//! A device that is not there.

use units::{Cpu, PAGE_SIZE};

use crate::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, IoError, Operation, Visit,
};

/// Stands for a device that cannot be opened now: whatever is asked of it fails with
/// [`IoError::Failed`]. What it has stays known as data, for the time when it is there again.
pub struct Absent {
    bytes: u64,
}

impl Absent {
    /// More bytes than a backing device can use: for one whose size nobody knows.
    pub const MOST: u64 = PAGE_SIZE as u64 * (1 << 32);

    /// Stands for a device of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Absent {
        Absent { bytes }
    }
}

impl BlockDevice for Absent {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes, minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    fn perform(&self, _: Context, _: Operation<'_>) -> Result<(), IoError> {
        Err(IoError::Failed)
    }

    fn extents(&self, _: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err(IoError::OutOfRange);
        }
        let _ = visit(Extent { length, kind: ExtentKind::Data });
        Ok(())
    }
}
