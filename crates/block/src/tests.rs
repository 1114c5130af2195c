use alloc::{vec, vec::Vec};
use core::ops::ControlFlow;

use units::{Lane, PAGE_SIZE};

use crate::layer::{Fault, FaultPlan};
use crate::*;

const LANE: Lane = Lane(0);
const P: u64 = PAGE_SIZE as u64;

fn extents(device: &impl BlockDevice, offset: u64, length: u64) -> Vec<Extent> {
    let mut found = vec![];
    let seen = device.extents(offset, length, &mut |e| {
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
    let mut read = |offset| device.submit(LANE, Operation::Read { offset, into: &mut byte });
    assert_eq!(read(2 * P - 1), Ok(()));
    assert_eq!(read(2 * P), Err(IoError::OutOfRange));
    assert_eq!(read(u64::MAX), Err(IoError::OutOfRange));
    let empty = Checked::new(Plain::new(0));
    let write = Operation::Write { offset: 0, from: &[1] };
    assert_eq!(empty.submit(LANE, write), Err(IoError::NotReady));
}

#[test]
fn plain_tells_data_zeroes_and_holes_apart() {
    let device = Plain::new(4 * PAGE_SIZE);
    device.submit(LANE, Operation::Write { offset: 0, from: &[1] }).unwrap();
    let mode = ZeroMode::KeepAllocated;
    device.submit(LANE, Operation::WriteZeroes { offset: P, length: P, mode }).unwrap();
    let kinds: Vec<_> = extents(&device, 0, 4 * P).iter().map(|e| e.kind).collect();
    use ExtentKind::*;
    assert_eq!(kinds, [Data, Zero, Hole, Hole]);
    device.submit(LANE, Operation::Discard { offset: 1, length: 4 * P - 1 }).unwrap();
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
        let write = |_| device.submit(LANE, Operation::Write { offset: 0, from: &[1] }).is_err();
        (0..64).map(write).collect::<Vec<bool>>()
    };
    assert_eq!(failures(1), failures(1));
    assert_ne!(failures(1), failures(2));
    assert!((4..32).contains(&failures(1).iter().filter(|failed| **failed).count()));
}
