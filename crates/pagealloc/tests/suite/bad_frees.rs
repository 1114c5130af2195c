//! What must not be freed: in a debug build a panic that says what was wrong, otherwise a count;
//! and in either case nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pagealloc::{ZoneOptions, ZoneStats};
use units::{Cpu, Frame};

use crate::free::Free;
use crate::model::{Borrower, Lender, Make};

const FRAMES: u32 = 2_000;

/// A call that is wrong.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    cpu: u32,
    frame: u32,
    order: u8,
}

/// Every kind of wrong call, in a zone that has allocated something and cached something.
pub fn bad_frees(make: Make) {
    // So few CPUs and so small caches that frames go through the zone, too.
    let options = ZoneOptions { batch: 4, cache_high: 8, ..ZoneOptions::new(2, FRAMES) };
    let mut borrower = Borrower::new(make, options);
    for n in 0..40 {
        assert!(borrower.borrow(n % 2, 0));
    }
    let has_blocks = borrower.zone.largest() > 0;
    for n in [3, 3, 0, 4].into_iter().filter(|_| has_blocks) {
        assert!(borrower.borrow(n % 2, n as u8));
    }
    let mut wrong = wrong_frees(&mut borrower);
    if has_blocks {
        wrong.extend(wrong_frees_of_blocks(&mut borrower, &wrong));
    }
    for (number, wrong) in (1..).zip(wrong) {
        let before = told(&borrower);
        let zone: &dyn Lender = &*borrower.zone;
        let call = || zone.take_back(Cpu(wrong.cpu), Frame(wrong.frame), wrong.order);
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(()) if cfg!(debug_assertions) => panic!("{wrong:?} was not found: no panic"),
            Ok(()) => {}
            Err(_) if !cfg!(debug_assertions) => panic!("{wrong:?} ended a release build"),
            Err(payload) => {
                let text = payload.downcast_ref::<String>().map_or("", String::as_str);
                let says = text.contains(&format!("frame {}", wrong.frame));
                assert!(says && text.contains("freed"), "{wrong:?}: the message is {text:?}");
            }
        }
        let count = borrower.zone.stats().bad_frees;
        assert_eq!(count, number, "{wrong:?} was not found: bad frees");
        assert!(told(&borrower) == before, "{wrong:?} had an effect");
        borrower.check();
    }
    // All that is held can be given back all the same.
    borrower.rest(|n| n as u32 % 2);
}

const fn wrong(cpu: u32, frame: u32, order: u8) -> Wrong {
    Wrong { cpu, frame, order }
}

/// Where among what is held the last block of this order is.
fn of_order(borrower: &Borrower, order: u8) -> usize {
    let found = borrower.held.iter().rposition(|held| held.order == order);
    found.expect("one of each was borrowed")
}

/// Double frees of what lies in a cache and in the zone, frames that were never allocated, and
/// frames beyond all there are.
fn wrong_frees(borrower: &mut Borrower) -> Vec<Wrong> {
    let mut calls = Vec::new();
    // The one freed first is in the zone when all are, the last in a cache.
    for n in 0..20 {
        let index = of_order(borrower, 0);
        let frame = borrower.held[index].frame.0;
        borrower.give_back(n % 2, index);
        calls.extend([wrong(0, frame, 0), wrong(1, frame, 0)]);
    }
    // The middle of what is free may never have been allocated.
    let (first, end) = largest_free(borrower);
    calls.extend([wrong(0, first, 0), wrong(1, end - 1, 0)]);
    calls.extend([wrong(0, FRAMES, 0), wrong(0, u32::MAX, 0), wrong(7, u32::MAX - 1023, 0)]);
    calls
}

/// The same of blocks: the inside and the end of them, what was merged, and other orders, those of
/// `singles` among them.
fn wrong_frees_of_blocks(borrower: &mut Borrower, singles: &[Wrong]) -> Vec<Wrong> {
    let mut calls: Vec<Wrong> = singles.iter().map(|call| Wrong { order: 1, ..*call }).collect();
    let index = of_order(borrower, 3);
    let block = borrower.held[index].frame.0;
    borrower.give_back(0, index);
    calls.extend([wrong(1, block, 3), wrong(1, block, 0), wrong(0, block + 4, 2)]);
    let single = borrower.held[of_order(borrower, 0)].frame.0;
    calls.extend([wrong(0, single, 1), wrong(1, single, 10)]);
    let block = borrower.held[of_order(borrower, 3)].frame.0;
    calls.extend([wrong(0, block, 0), wrong(0, block, 2), wrong(0, block, 4), wrong(1, block, 9)]);
    calls.extend([wrong(0, block + 1, 0), wrong(1, block + 7, 0), wrong(0, block + 4, 2)]);
    let block = borrower.held[of_order(borrower, 4)].frame.0;
    calls.extend([wrong(0, block + 8, 3), wrong(0, block, 3)]);
    let (first, end) = largest_free(borrower);
    calls.push(wrong(0, first, (end - first).ilog2() as u8));
    calls.extend([wrong(1, FRAMES + 48, 4), wrong(0, u32::MAX, 10), wrong(7, u32::MAX - 1023, 10)]);
    calls
}

/// The first frame and the end of the largest free block.
fn largest_free(borrower: &Borrower) -> (u32, u32) {
    let free = Free::of(&*borrower.zone, borrower.allocated()).blocks;
    let (first, order) = free.into_iter().max_by_key(|block| block.1).expect("it is not full");
    (first, first + (1 << order))
}

/// All that can be told of a zone from outside, but for the count of bad frees.
fn told(borrower: &Borrower) -> (ZoneStats, Vec<(u32, u8)>) {
    let free = Free::of(&*borrower.zone, borrower.allocated());
    let stats = ZoneStats { bad_frees: 0, ..borrower.zone.stats() };
    (stats, free.blocks.into_iter().collect())
}
