use alloc::{vec, vec::Vec};
use core::ops::ControlFlow;

use units::{Cpu, PAGE_SIZE};

use crate::layer::{Fault, FaultPlan, Part};
use crate::*;

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;

fn extents(device: &impl BlockDevice, offset: u64, length: u64) -> Vec<Extent> {
    let mut found = vec![];
    let seen = device.extents(CPU, offset, length, &mut |e| {
        found.push(e);
        ControlFlow::Continue(())
    });
    seen.unwrap();
    found
}

#[test]
fn the_contract_is_checked() {
    let device = Checked::new(Plain::new(2 * PAGE_SIZE));
    let mut byte = [0];
    let mut read = |offset| device.submit(CPU, Operation::Read { offset, into: &mut byte });
    assert_eq!(read(2 * P - 1), Ok(()));
    assert_eq!(read(2 * P), Err(IoError::OutOfRange));
    assert_eq!(read(u64::MAX), Err(IoError::OutOfRange));
    let empty = Checked::new(Plain::new(0));
    let write = Operation::Write { offset: 0, from: &[1] };
    assert_eq!(empty.submit(CPU, write), Err(IoError::NotReady));
}

#[test]
fn plain_tells_data_zeroes_and_holes_apart() {
    let device = Plain::new(4 * PAGE_SIZE);
    device.submit(CPU, Operation::Write { offset: 0, from: &[1] }).unwrap();
    let mode = ZeroMode::KeepAllocated;
    device.submit(CPU, Operation::WriteZeroes { offset: P, length: P, mode }).unwrap();
    let kinds: Vec<_> = extents(&device, 0, 4 * P).iter().map(|e| e.kind).collect();
    use ExtentKind::*;
    assert_eq!(kinds, [Data, Zero, Hole, Hole]);
    device.submit(CPU, Operation::Discard { offset: 1, length: 4 * P - 1 }).unwrap();
    let kinds: Vec<_> = extents(&device, 0, 4 * P).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [Data, Hole, Hole, Hole]);
}

#[test]
fn faults_follow_the_seed() {
    let failures = |seed| {
        let plan = FaultPlan {
            seed,
            reads_per_million: 0,
            changes_per_million: 250_000,
            flushes_per_million: 0,
        };
        let device = Fault::new(Plain::new(PAGE_SIZE), plan);
        let write = |_| device.submit(CPU, Operation::Write { offset: 0, from: &[1] }).is_err();
        (0..64).map(write).collect::<Vec<bool>>()
    };
    assert_eq!(failures(1), failures(1));
    assert_ne!(failures(1), failures(2));
    assert!((4..32).contains(&failures(1).iter().filter(|failed| **failed).count()));
}

/// Counts the batches that reach it, and how long they are.
struct Batches {
    next: Plain,
    seen: sync::Mutex<Vec<usize>>,
}

impl BlockDevice for Batches {
    fn geometry(&self) -> Geometry {
        Geometry { minimum_block: 512, ..self.next.geometry() }
    }
    fn abilities(&self) -> Abilities {
        self.next.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.next.perform(context, operation)
    }
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        self.seen.lock().push(jobs.len());
        self.next.submit_all(cpu, jobs);
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.next.extents(cpu, offset, length, visit)
    }
}

#[test]
fn batches_pass_layers_without_the_jobs_that_are_wrong() {
    let next = Batches { next: Plain::new(4 * PAGE_SIZE), seen: sync::Mutex::new(vec![]) };
    let plan = FaultPlan {
        seed: 1,
        reads_per_million: 0,
        changes_per_million: 0,
        flushes_per_million: 1_000_000,
    };
    let device = Checked::new(Fault::new(next, plan));
    let write = |offset| Job::new(Operation::Write { offset, from: &[7; 512] });
    let flush = || Job::new(Operation::Flush);
    let mut jobs = [write(1), write(0), write(P), flush(), flush(), write(2 * P), write(4 * P)];
    device.submit_all(CPU, &mut jobs);
    use IoError::{Failed, OutOfRange, Unaligned};
    let results = jobs.map(|job| job.result);
    let failed = Err(Failed);
    assert_eq!(results, [Err(Unaligned), Ok(()), Ok(()), failed, failed, Ok(()), Err(OutOfRange)]);
    let mut held = [0; 3];
    for (page, byte) in held.iter_mut().enumerate() {
        let mut into = [0; 512];
        let read = Operation::Read { offset: page as u64 * P, into: &mut into };
        device.submit(CPU, read).unwrap();
        *byte = into[0];
    }
    assert_eq!(held, [7, 7, 7]);
    let seen = &device.inner().inner().seen;
    assert_eq!(*seen.lock(), [2, 1]);
    device.submit_all(CPU, &mut []);
    device.submit_all(CPU, &mut [write(3)]);
    assert_eq!(seen.lock().len(), 2, "nothing was left to do");
}

#[test]
fn a_part_is_what_is_behind_its_beginning() {
    let whole = alloc::sync::Arc::new(Checked::new(Plain::new(4 * PAGE_SIZE)));
    let part = Part::behind(whole.clone(), P);
    assert_eq!(part.geometry().bytes, 3 * P);
    let write = |offset, byte: &'static [u8]| Job::new(Operation::Write { offset, from: byte });
    let mut jobs = [write(0, &[7]), write(2 * P, &[8]), Job::new(Operation::Flush)];
    part.submit_all(CPU, &mut jobs);
    assert!(jobs.iter().all(|job| job.result.is_ok()));
    assert_eq!(jobs.map(|job| job.operation.range().0), [0, 2 * P, 0]);
    let mut byte = [0];
    let mut read = |device: &dyn BlockDevice, offset| {
        let read = device.submit(CPU, Operation::Read { offset, into: &mut byte });
        read.map(|()| byte[0])
    };
    assert_eq!([0, 1, 3].map(|page| read(&whole, page * P)), [Ok(0), Ok(7), Ok(8)]);
    assert_eq!([0, 2].map(|page| read(&part, page * P)), [Ok(7), Ok(8)]);
    for offset in [3 * P, u64::MAX, u64::MAX - P + 1] {
        assert_eq!(read(&part, offset), Err(IoError::OutOfRange));
        let mut jobs = [write(0, &[9]), write(offset, &[9])];
        part.submit_all(CPU, &mut jobs);
        assert_eq!(jobs.map(|job| job.result), [Ok(()), Err(IoError::OutOfRange)]);
    }
    assert_eq!(read(&whole, 0), Ok(0));
    assert_eq!(extents(&part, 0, 3 * P).len(), 3);
    // No more of it than was said, although the device goes on.
    let part = part.at_most(2 * P);
    assert_eq!(part.geometry().bytes, 2 * P);
    assert_eq!([P, 2 * P].map(|offset| read(&part, offset)), [Ok(0), Err(IoError::OutOfRange)]);
    let mut jobs = [write(2 * P - 2, &[1, 2, 3]), Job::new(Operation::Flush), write(P, &[6])];
    part.submit_all(CPU, &mut jobs);
    assert_eq!(jobs.map(|job| job.result), [Err(IoError::OutOfRange), Ok(()), Ok(())]);
    assert_eq!([1, 2, 3].map(|page| read(&whole, page * P)), [Ok(9), Ok(6), Ok(8)]);
    let refused = part.extents(CPU, P, P + 1, &mut |_| unreachable!());
    assert_eq!(refused, Err(IoError::OutOfRange));
}
