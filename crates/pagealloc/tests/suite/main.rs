//! The seam's suite: what every zone design must do, and designs that must not pass.

// A sanitizer ends the process at the first of them.
#[cfg(not(asan))]
mod broken;
mod checks;
mod list_zones;
mod model;
mod world;

use pagealloc::{Frames, Zone, ZoneOptions};
use units::{FRAMES_PER_BLOCK, Lane, Order};

use crate::checks::conforms;
use crate::model::Borrower;
use crate::world::HeapWorld;

fn zone(world: &HeapWorld, options: ZoneOptions) -> Box<dyn Frames> {
    Box::new(Zone::new(world, options).expect("the heap has enough"))
}

#[test]
fn zone_conforms() {
    conforms(zone);
}

#[test]
fn zone_conforms_without_lanes_of_its_own() {
    // No stock to speak of, one lane for all, every block settled: other ways through the code.
    conforms(|world, options| {
        let options = ZoneOptions { lanes: 0, batch: 0, cache_high: 0, settle: true, ..options };
        zone(world, options)
    });
}

#[test]
fn zone_lends_low_addresses_first() {
    let mut borrower = Borrower::new(zone, ZoneOptions::new(1, 4 * FRAMES_PER_BLOCK));
    while borrower.borrow(0, 0) {}
    let low = |n: u32| n.is_multiple_of(5);
    for n in (0..borrower.held.len()).rev() {
        if low(borrower.held[n].frame.0) {
            borrower.give_back(0, n);
        }
    }
    borrower.zone.drain();
    for n in 0..50 {
        assert_eq!(borrower.zone.alloc(Lane(0), Order::ZERO).unwrap().0, 5 * n);
    }
}

#[test]
fn zone_settles_each_full_block_once_and_not_while_somebody_waits() {
    let options = ZoneOptions { settle: true, ..ZoneOptions::new(1, 4 * FRAMES_PER_BLOCK) };
    let mut borrower = Borrower::new(zone, options);
    for _ in 0..FRAMES_PER_BLOCK - 1 {
        assert!(borrower.borrow(0, 0));
    }
    borrower.zone.drain();
    assert_eq!(borrower.record.log().settled, [0; 0], "a part of the block is free");
    assert!(borrower.borrow(0, 0));
    assert!(borrower.borrow(0, 9));
    assert_eq!(borrower.record.log().settled, [0; 0], "nobody has time for it");
    borrower.zone.drain();
    assert_eq!(borrower.record.log().settled, [0, 1]);
    assert!(borrower.borrow(0, 10));
    borrower.zone.tend(u32::MAX);
    assert_eq!(borrower.record.log().settled, [0, 1, 2, 3]);
    for round in 0..3 {
        borrower.give_back(0, 5 + round);
        borrower.zone.drain();
        assert!(borrower.borrow(0, 0));
        borrower.zone.drain();
        let settled = borrower.record.log().settled.len();
        assert_eq!(settled, 5 + round, "round {round}: a piece of it had been taken back");
    }
    for round in 0..3 {
        borrower.give_back(0, 8 + round);
        assert!(borrower.borrow(0, 0));
        borrower.zone.tend(u32::MAX);
        borrower.zone.drain();
        assert_eq!(borrower.record.log().settled.len(), 7, "round {round}: once is enough");
    }
    borrower.rest(|_| 0);
    assert!(borrower.borrow(0, 9));
    borrower.zone.tend(u32::MAX);
    assert_eq!(borrower.record.log().settled.len(), 8, "what was returned is settled again");
}

#[test]
fn zone_reports_worlds_without_memory() {
    struct Nowhere;
    impl pagealloc::World for Nowhere {
        fn reserve(&self, bytes: usize) -> Result<pagealloc::Region, pagealloc::NoMemory> {
            Err(pagealloc::NoMemory { bytes })
        }
    }
    assert!(Zone::new(&Nowhere, ZoneOptions::new(1, 1)).is_err());
    let empty = zone(&HeapWorld::default(), ZoneOptions::new(1, 0));
    for order in [Order::ZERO, Order::MAX] {
        assert_eq!(empty.alloc(Lane(0), order), None);
    }
    empty.drain();
    empty.validate();
}
