//! A layer that is a part of the device below.

use units::Cpu;

use crate::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};

/// The bytes of a device from one place on, as a device. What is before them is not touched.
pub struct Part<D> {
    next: D,
    start: u64,
    most: u64,
}

impl<D: BlockDevice> Part<D> {
    /// What follows the first `start` bytes of `next`, a whole number of its blocks.
    pub const fn behind(next: D, start: u64) -> Part<D> {
        Part { next, start, most: u64::MAX }
    }

    /// Only the first `bytes` of that.
    #[must_use]
    pub fn at_most(self, bytes: u64) -> Part<D> {
        Part { most: bytes, ..self }
    }

    /// Where a range, an offset and a length, begins on the device below.
    fn there(&self, (offset, length): (u64, u64)) -> Result<u64, IoError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.most);
        end.and(offset.checked_add(self.start)).ok_or(IoError::OutOfRange)
    }
}

impl<D: BlockDevice> BlockDevice for Part<D> {
    fn geometry(&self) -> Geometry {
        let below = self.next.geometry();
        Geometry { bytes: below.bytes.saturating_sub(self.start).min(self.most), ..below }
    }

    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }

    fn perform(&self, context: Context, mut operation: Operation<'_>) -> Result<(), IoError> {
        let there = self.there(operation.range())?;
        if let Some(offset) = operation.offset_mut() {
            *offset = there;
        }
        self.next.perform(context, operation)
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        if jobs.iter().any(|job| self.there(job.operation.range()).is_err()) {
            for job in jobs {
                job.result = self.submit(cpu, job.operation.reborrow());
            }
            return;
        }
        for offset in jobs.iter_mut().filter_map(|job| job.operation.offset_mut()) {
            *offset += self.start;
        }
        self.next.submit_all(cpu, jobs);
        for offset in jobs.iter_mut().filter_map(|job| job.operation.offset_mut()) {
            *offset -= self.start;
        }
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, self.there((offset, length))?, length, visit)
    }
}
