//! Zones at rest, and large blocks among small ones.

use std::collections::BTreeSet;

use testkit::{Rng, seed};
use units::FRAMES_PER_PAGEBLOCK;

use crate::free::Free;
use crate::model::{Borrower, Make};
use pagealloc::ZoneOptions;

/// While some of it is allocated, all the rest is merged once the caches are drained, whichever frames
/// those are; and so it stays, however often it is drained.
pub fn at_rest(make: Make) {
    let mut rng = Rng::new(seed("at_rest"));
    for frames in [5, 64, 700, 2 * 1024 + 9] {
        let mut borrower = Borrower::new(make, ZoneOptions::new(2, frames));
        for of_eight in [1, 4, 7] {
            while borrower.borrow(rng.below(2) as u32, 0) {}
            for n in (0..borrower.held.len()).rev() {
                if rng.below(8) < of_eight {
                    borrower.give_back(rng.below(2) as u32, n);
                }
            }
            for _ in 0..2 {
                borrower.zone.drain();
                borrower.check();
                Free::of(&*borrower.zone, borrower.allocated()).is_at_rest(borrower.allocated());
            }
        }
        borrower.rest(|n| n as u32 % 2);
    }
}

/// Whole blocks are found when they are there, wherever their frames lie: in the zone or in the
/// caches of CPUs, merged or not.
pub fn huge_when_there(make: Make) {
    const BLOCKS: u32 = 12;
    let mut rng = Rng::new(seed("huge_when_there"));
    let mut borrower = Borrower::new(make, ZoneOptions::new(3, BLOCKS * FRAMES_PER_PAGEBLOCK));
    for round in 0..6 {
        while borrower.borrow(0, 0) {}
        let whole: BTreeSet<u32> = (0..BLOCKS).filter(|_| rng.one_in(2)).collect();
        // All but one frame of the others.
        let spared: Vec<u32> = (0..BLOCKS)
            .map(|block| {
                block * FRAMES_PER_PAGEBLOCK + rng.below(u64::from(FRAMES_PER_PAGEBLOCK)) as u32
            })
            .collect();
        let stays = |frame: u32| spared.contains(&frame) && !whole.contains(&(frame / 512));
        rng.shuffle(&mut borrower.held);
        for n in (0..borrower.held.len()).rev() {
            if !stays(borrower.held[n].frame.0) {
                borrower.give_back(rng.below(3) as u32, n);
            }
        }
        // `borrow` believes no `None` while there is a block; this counts them all the same.
        let order = if round % 2 == 0 { 9 } else { 10 };
        let mut found = 0;
        while borrower.borrow(round, order) {
            found += 1;
        }
        let is_whole = |n: &u32| whole.contains(&(2 * n)) && whole.contains(&(2 * n + 1));
        let there = if order == 9 { whole.len() } else { (0..BLOCKS / 2).filter(is_whole).count() };
        assert_eq!(found, there, "blocks of order {order} of {whole:?}");
        borrower.rest(|n| n as u32 % 3);
    }
}
