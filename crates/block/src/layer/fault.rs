//! Failures on purpose, from a seed.

use sync::Mutex;
use units::Cpu;

use crate::checked::submit_allowed;
use crate::{Abilities, BlockDevice, Geometry, IoError, Job, Operation, Visit};

/// Which operations fail, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// Where the pseudo-random sequence begins; the same seed fails the same operations.
    pub seed: u64,
    /// Reads that fail, of a million.
    pub reads_per_million: u32,
    /// Writes, discards and zeroings that fail, of a million.
    pub changes_per_million: u32,
    /// Flushes that fail, of a million.
    pub flushes_per_million: u32,
}

/// A layer that fails some operations before they reach the next device.
pub struct Fault<D> {
    next: D,
    plan: FaultPlan,
    state: Mutex<u64>,
}

impl<D: BlockDevice> Fault<D> {
    /// Fails operations on `next` by `plan`.
    pub fn new(next: D, plan: FaultPlan) -> Fault<D> {
        Fault { next, plan, state: Mutex::new(plan.seed) }
    }

    /// The device below.
    pub const fn inner(&self) -> &D {
        &self.next
    }

    /// The next number of the sequence (Steele, Lea and Flood, "Fast splittable pseudorandom
    /// number generators", 2014).
    fn draw(&self) -> u64 {
        let mut state = self.state.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn judge(&self, operation: &Operation<'_>) -> Result<(), IoError> {
        let per_million = match operation {
            Operation::Read { .. } => self.plan.reads_per_million,
            Operation::Flush => self.plan.flushes_per_million,
            _ => self.plan.changes_per_million,
        };
        if self.draw() % 1_000_000 < u64::from(per_million) {
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

    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        self.judge(&operation)?;
        self.next.submit(cpu, operation)
    }

    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        submit_allowed(&self.next, cpu, jobs, |operation| self.judge(operation));
    }

    fn may_wait(&self, offset: u64, length: u64) -> bool {
        self.next.may_wait(offset, length)
    }

    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(offset, length, visit)
    }
}
