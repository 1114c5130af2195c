//! An unused terabyte costs almost nothing. The test is alone in its file, because it measures the
//! memory of the whole process.

mod common;

use block::{BlockDevice, ExtentKind, Operation};
use common::Plan;
use std::ops::ControlFlow;
use units::{Cpu, PAGE_SIZE};

const P: u64 = PAGE_SIZE as u64;
const TIB: u64 = 1 << 40;

#[test]
fn an_unused_terabyte_costs_almost_nothing() {
    // The first device of a process has a cost of its own, which this test excludes.
    drop(Plan::new(64 * P, zcomp::LZ4).build());
    let before = host::resident_bytes();
    let disk = Plan::new(TIB, zcomp::LZ4).build();
    let mut page = [1; PAGE_SIZE];
    for offset in [0, TIB / 3 / P * P, TIB - P] {
        disk.submit(Cpu(0), Operation::Read { offset, into: &mut page }).unwrap();
        assert!(page == [0; PAGE_SIZE], "an empty page is not zeroes");
    }
    let mut extents = Vec::new();
    let told = disk.extents(Cpu(0), 0, TIB, &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    });
    told.unwrap();
    assert!(extents.iter().all(|extent| extent.kind == ExtentKind::Hole), "nothing was written");
    assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), TIB);
    disk.submit(Cpu(0), Operation::Discard { offset: 0, length: TIB }).unwrap();
    let grown = host::resident_bytes().saturating_sub(before);
    assert!(before > 0 && grown < 1 << 20, "an unused terabyte takes {grown} bytes");

    let last = core::array::from_fn(|n| (n % 251) as u8);
    disk.submit(Cpu(0), Operation::Write { offset: TIB - P, from: &last }).unwrap();
    disk.submit(Cpu(0), Operation::Read { offset: TIB - P, into: &mut page }).unwrap();
    assert!(page == last, "the last page is not what was stored");
    let mut byte = [0];
    disk.submit(Cpu(0), Operation::Read { offset: TIB - 1, into: &mut byte }).unwrap();
    assert_eq!(byte, [last[PAGE_SIZE - 1]]);
    assert_eq!(disk.disk.stats().pages_stored, 1);
    let grown = host::resident_bytes().saturating_sub(before);
    assert!(grown < 2 << 20, "a terabyte with one page takes {grown} bytes");
}
