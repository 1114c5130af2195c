//! Caches of swap areas against the model, with every index: random events, a device that fails,
//! memory that cannot be had, limits, tenants and settings that change.

#[path = "common/swap.rs"]
mod common;

use common::Engine;
use sim::swap::{Cache, Drive, Mix, Outcome};
use testkit::{Rng, seed};

fn events(usual: usize) -> usize {
    let asked = std::env::var("RAMPACK_EVENTS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(usual)
}

/// A run with each index, one after the other.
fn runs(test: &str, mix: Mix, lanes: u32, events: usize) -> Vec<Outcome> {
    let mut rng = Rng::new(seed(test));
    let run = |index: &&'static str| {
        let drive = Drive { seed: rng.next_u64(), events, mix, lanes };
        let make = || -> Box<dyn Cache> { Box::new(Engine::of_stack(index, lanes as usize)) };
        let outcome = drive.run(&make);
        println!("{test}, {index}: {outcome:?}");
        outcome
    };
    stack::INDEXES.iter().map(run).collect()
}

/// Pages leave in exactly the order that first in, first out, and second chances make, whatever
/// the device does.
#[test]
fn the_oldest_leave_first() {
    for outcome in runs("the_oldest_leave_first", Mix::ORDER, 1, 6000) {
        assert!(outcome.written_back > 300 && outcome.failed_writes > 100, "{outcome:?}");
    }
}

#[test]
fn limits_are_kept() {
    for outcome in runs("limits_are_kept", Mix::LIMITS, 3, 6000) {
        assert!(outcome.written_back > 300 && outcome.refused > 100, "{outcome:?}");
    }
}

/// `RAMPACK_EVENTS` makes it longer than the rest of the tests want.
#[test]
fn everything_at_once() {
    for outcome in runs("everything_at_once", Mix::ALL, 3, events(8000) / 4) {
        assert!(outcome.written_back > 50 && outcome.failed_writes > 20, "{outcome:?}");
        assert!(outcome.refused > 50 && outcome.duplicates > 20, "{outcome:?}");
    }
}
