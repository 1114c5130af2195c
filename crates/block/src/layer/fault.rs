//! A layer that injects faults from a seed.

use sync::Mutex;
use units::Cpu;

use crate::checked::submit_allowed;
use crate::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};

/// The operations that fail, and their rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// The seed of the pseudo-random sequence; the same seed fails the same operations.
    pub seed: u64,
    /// The failing reads per million.
    pub reads_per_million: u32,
    /// The failing writes, discards and zeroings per million.
    pub changes_per_million: u32,
    /// The failing flushes per million.
    pub flushes_per_million: u32,
}

/// A layer that fails some operations before they reach the next device.
pub struct Fault<D> {
    next: D,
    plan: FaultPlan,
    numbers: Mutex<fastrand::Rng>,
}

impl<D: BlockDevice> Fault<D> {
    /// Puts the layer above `next`; it fails operations by `plan`.
    pub fn new(next: D, plan: FaultPlan) -> Fault<D> {
        Fault { next, plan, numbers: Mutex::new(fastrand::Rng::with_seed(plan.seed)) }
    }

    /// The device below.
    pub const fn inner(&self) -> &D {
        &self.next
    }

    fn judge(&self, operation: &Operation<'_>) -> Result<(), IoError> {
        let per_million = match operation {
            Operation::Read { .. } => self.plan.reads_per_million,
            Operation::Flush => self.plan.flushes_per_million,
            _ => self.plan.changes_per_million,
        };
        if self.numbers.lock().u32(..1_000_000) < per_million {
            return Err(IoError::Failed);
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Fault<D> {
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
        self.next.extents(cpu, offset, length, visit)
    }
}
