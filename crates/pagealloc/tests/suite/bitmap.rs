//! Random calls from a printed seed, against a bitmap of what is allocated. The bitmap says exactly what
//! may be allocated next and when the answer may be `None`; with the zone's free blocks it must make up
//! all frames that are managed.

use pagealloc::ZoneOptions;
use testkit::{Rng, asked, seed};

use crate::design::Design;
use crate::free::Free;
use crate::model::Borrower;

/// Calls for each zone, if `RAMPACK_EVENTS` does not say otherwise.
const CALLS: usize = if cfg!(any(asan, miri)) { 500 } else { 10_000 };
const ZONES: usize = 6;

/// What is likely, for a while.
struct FaultMode {
    /// Of 16 calls so many borrow.
    eagerness: u64,
    /// Of 16 that borrow so many want a single frame.
    singles: u64,
    /// The largest order wanted.
    most: u64,
    /// Whether blocks are given back in the order of their frames, as when a process ends.
    in_order: bool,
}

impl FaultMode {
    fn new(rng: &mut Rng, largest: u64) -> FaultMode {
        FaultMode {
            eagerness: 2 + rng.below(13),
            singles: rng.below(17),
            most: *rng.pick(&[2, 4, 10, 10]).min(&largest),
            in_order: rng.one_in(3),
        }
    }
}

/// Random calls on zones of several sizes and options.
pub fn against_bitmap(design: &Design) {
    drawn_from(seed(&format!("against_bitmap, {}", design.name)), design);
}

/// The same calls for the same seed.
pub fn drawn_from(seed: u64, design: &Design) {
    let calls = asked("RAMPACK_EVENTS", CALLS);
    let mut rng = Rng::new(seed);
    for zone in 0..ZONES {
        let mut options = options(&mut rng);
        if zone == 0 {
            // Some flaws show only where two CPUs have frames.
            options.cpus = options.cpus.max(2);
        }
        println!("{options:?}");
        let mut borrower = Borrower::new(design.make, options);
        walk(&mut borrower, design, &mut rng, options.cpus as u64, calls);
        borrower.provider.refuse(false);
        borrower.rest(|_| rng.below(4) as u32);
    }
}

fn options(rng: &mut Rng) -> ZoneOptions {
    let frames = match rng.below(4) {
        0 => 1 + rng.below(64),
        1 => 1 + rng.below(2_000),
        2 => 512 * (1 + rng.below(10)),
        // More than is asked for at a time.
        _ => 9_000 + rng.below(3_000),
    };
    let cache_high = 1 + rng.below(64) as usize;
    ZoneOptions {
        batch: 1 + rng.below(cache_high as u64) as usize,
        cache_high,
        keep_free_blocks: rng.below(3) as u32,
        collapse: rng.one_in(2),
        ..ZoneOptions::new(rng.below(4) as usize, frames as u32)
    }
}

fn walk(borrower: &mut Borrower, design: &Design, rng: &mut Rng, cpus: u64, calls: usize) {
    let largest = u64::from(borrower.zone.largest());
    let mut fault_mode = FaultMode::new(rng, largest);
    for _ in 0..calls {
        let cpu = rng.below(cpus + 2) as u32;
        match rng.below(800) {
            0 => borrower.zone.drain(),
            1 => borrower.check(),
            2 => at_rest(borrower),
            // The system has no memory for a while.
            3 => borrower.provider.refuse(rng.one_in(2)),
            4..12 => fault_mode = FaultMode::new(rng, largest),
            _ if rng.below(16) < fault_mode.eagerness => {
                let single = rng.below(16) < fault_mode.singles;
                let order = if single { 0 } else { rng.below(fault_mode.most + 1) };
                borrower.borrow(cpu, order as u8);
            }
            _ if borrower.held.is_empty() => {}
            _ => {
                let held = borrower.held.len();
                let index =
                    if fault_mode.in_order { held - 1 } else { rng.below(held as u64) as usize };
                borrower.give_back(cpu, index);
            }
        }
        if design.merges && rng.one_in(300) {
            Free::of(&*borrower.zone, borrower.allocated()).is_merged();
        }
    }
}

/// Nothing is cached, all that can be is merged, and what is allocated stays allocated.
fn at_rest(borrower: &mut Borrower) {
    borrower.zone.drain();
    borrower.check();
    Free::of(&*borrower.zone, borrower.allocated()).is_at_rest(borrower.allocated());
}
