//! The seam's suite: what every zone design must do, and designs that must not pass; and what the
//! product's own must do besides. The suite runs for the designs of `research` too, from there.

mod bad_frees;
mod bitmap;
// A sanitizer ends the process at the first of them.
#[cfg(not(asan))]
mod broken;
mod checks;
#[cfg(not(asan))]
mod controls;
mod crowd;
mod design;
mod each;
mod exhaustive;
mod free;
mod model;
#[cfg(not(asan))]
mod naive;
#[cfg(asan)]
#[allow(dead_code)]
mod poison;
// What it checks of larger blocks is for the designs of `research`, and for the controls.
#[cfg_attr(asan, allow(dead_code))]
mod rest;
mod tested;
mod waits;
// Worlds whose memory is provided ahead are for the unit tests.
#[allow(dead_code)]
mod provider;

use pagealloc::{Zone, ZoneOptions};
use units::{Cpu, FRAMES_PER_PAGEBLOCK};

use crate::design::zone;
use crate::model::Borrower;
use crate::provider::HeapProvider;

each::designs! {
    bitfield: "bitfield";
}

#[test]
fn zone_lends_low_addresses_first() {
    let mut borrower = Borrower::new(zone, ZoneOptions::new(1, 4 * FRAMES_PER_PAGEBLOCK));
    while borrower.borrow(0, 0) {}
    let low = |n: u32| n.is_multiple_of(5);
    for n in (0..borrower.held.len()).rev() {
        if low(borrower.held[n].frame.0) {
            borrower.give_back(0, n);
        }
    }
    borrower.zone.drain();
    for n in 0..50 {
        assert_eq!(borrower.zone.alloc(Cpu(0)).unwrap().0, 5 * n);
    }
}

#[test]
fn zone_collapses_each_full_block_once_and_not_while_somebody_waits() {
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(1, 4 * FRAMES_PER_PAGEBLOCK) };
    let mut borrower = Borrower::new(zone, options);
    for _ in 0..FRAMES_PER_PAGEBLOCK - 1 {
        assert!(borrower.borrow(0, 0));
    }
    borrower.zone.drain();
    assert_eq!(borrower.record.log().collapsed, [0; 0], "a part of the block is free");
    assert!(borrower.borrow(0, 0));
    borrower.borrow_pageblock(0);
    assert_eq!(borrower.record.log().collapsed, [0; 0], "nobody has time for it");
    borrower.zone.drain();
    assert_eq!(borrower.record.log().collapsed, [0, 1]);
    (0..2).for_each(|_| borrower.borrow_pageblock(0));
    borrower.zone.maintain(u32::MAX);
    assert_eq!(borrower.record.log().collapsed, [0, 1, 2], "the CPU still has the last block");
    borrower.zone.drain();
    assert_eq!(borrower.record.log().collapsed, [0, 1, 2, 3]);
    for round in 0..3 {
        borrower.give_back(0, 5 + round);
        borrower.zone.drain();
        assert!(borrower.borrow(0, 0));
        borrower.zone.drain();
        let collapsed = borrower.record.log().collapsed.len();
        assert_eq!(collapsed, 5 + round, "round {round}: a piece of it had been taken back");
    }
    for round in 0..3 {
        borrower.give_back(0, 8 + round);
        assert!(borrower.borrow(0, 0));
        borrower.zone.maintain(u32::MAX);
        borrower.zone.drain();
        assert_eq!(borrower.record.log().collapsed.len(), 7, "round {round}: once is enough");
    }
    borrower.rest(|_| 0);
    (0..2).for_each(|_| borrower.borrow_pageblock(0));
    borrower.zone.maintain(u32::MAX);
    assert_eq!(borrower.record.log().collapsed.len(), 8, "what was returned is collapsed again");
}

#[test]
fn zone_reports_worlds_without_memory() {
    struct Nowhere;
    impl pagealloc::MemoryProvider for Nowhere {
        fn reserve(&self, bytes: usize) -> Result<pagealloc::Region, pagealloc::NoMemory> {
            Err(pagealloc::NoMemory { bytes })
        }
    }
    assert!(Zone::new(&Nowhere, ZoneOptions::new(1, 1)).is_err());
    let empty = zone(&HeapProvider::default(), ZoneOptions::new(1, 0));
    assert_eq!(empty.alloc(Cpu(0)), None);
    empty.drain();
    empty.validate();
}
