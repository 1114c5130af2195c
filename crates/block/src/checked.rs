//! A layer that checks operations for a device that does not check them itself.

use units::Cpu;

use crate::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};

/// Refuses an operation that passes the end, is unaligned, or changes a read-only device, so that
/// the device below need not check. Backing devices and remote stores have it above them. Disks and
/// logs check ranges themselves, in the pass that carries out the operation.
pub struct Checked<D> {
    next: D,
}

impl<D: BlockDevice> Checked<D> {
    /// Puts the checks above `next`.
    pub const fn new(next: D) -> Checked<D> {
        Checked { next }
    }

    /// The device below.
    pub const fn inner(&self) -> &D {
        &self.next
    }

    fn judge(&self, operation: &Operation<'_>) -> Result<(), IoError> {
        let (offset, length) = operation.range();
        check(self.next.geometry(), offset, length)?;
        if operation.changes() && self.next.abilities().read_only {
            return Err(IoError::ReadOnly);
        }
        Ok(())
    }
}

/// Passes the jobs that `judge` accepts on to `next`, neighbours together. The other jobs fail with
/// the error of `judge`.
pub(crate) fn submit_allowed<D: BlockDevice>(
    next: &D,
    cpu: Cpu,
    jobs: &mut [Job<'_>],
    judge: impl Fn(&Operation<'_>) -> Result<(), IoError>,
) {
    let mut start = 0;
    for end in 0..=jobs.len() {
        let refused = match jobs.get(end) {
            Some(job) => match judge(&job.operation) {
                Ok(()) => continue,
                refused => refused,
            },
            None => Ok(()),
        };
        if start < end {
            next.submit_all(cpu, &mut jobs[start..end]);
        }
        if let Some(job) = jobs.get_mut(end) {
            job.result = refused;
        }
        start = end + 1;
    }
}

fn check(geometry: Geometry, offset: u64, length: u64) -> Result<(), IoError> {
    let end = offset.checked_add(length).ok_or(IoError::OutOfRange)?;
    if end > geometry.bytes {
        return Err(if geometry.bytes == 0 { IoError::NotReady } else { IoError::OutOfRange });
    }
    let unit = u64::from(geometry.minimum_block.max(1));
    if !(offset.is_multiple_of(unit) && length.is_multiple_of(unit)) {
        return Err(IoError::Unaligned);
    }
    Ok(())
}

impl<D: BlockDevice> BlockDevice for Checked<D> {
    fn geometry(&self) -> Geometry {
        self.next.geometry()
    }

    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }

    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.judge(&operation)?;
        self.next.perform(context, operation)
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        submit_allowed(&self.next, cpu, jobs, |operation| self.judge(operation));
    }

    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        check(Geometry { minimum_block: 1, ..self.next.geometry() }, offset, length)?;
        self.next.extents(cpu, offset, length, visit)
    }
}
