//! Caches of swap devices under shuttle: stores, loads, invalidations, refusals and swapoff while
//! other threads write pages back, and frees that are heard. Every byte is checked. The same
//! scenarios must reject broken caches; `testing/mutants` has the engines that they must reject.
//! `shuttle.rs` and docs/internals/testing.md say how to run it.
#![cfg(shuttle)]

#[path = "common/broken_index.rs"]
mod broken_index;
#[path = "common/swap.rs"]
mod common;
#[path = "shuttle/swap_device_scenario.rs"]
mod device_scenario;
#[path = "shuttle/explore.rs"]
mod explore;
#[path = "shuttle/frees_scenario.rs"]
mod frees_scenario;
#[path = "shuttle/history.rs"]
mod history;
#[path = "shuttle/swap_scenario.rs"]
mod scenario;

use std::sync::Arc;

use broken_index::with_flaw;
use common::{Engine, INDEXES, with_index};
use device_scenario::{MakeEngine, Scenario as Device};
use explore::{Play, controls, holds};
use frees_scenario::Scenario as Frees;
use scenario::{MakeCache, Scenario};
use sim::swap::{Cache, Flaw, Naive};

/// The engine with an index that is broken.
fn indexed(flaw: broken_index::Flaw) -> MakeCache {
    Arc::new(move || -> Arc<dyn Cache> { Arc::new(with_flaw!(flaw, with_index(CPUS))) })
}

/// The number of CPUs. It is below the number of threads, so that some share a CPU.
const CPUS: usize = 2;

fn on(scenario: Scenario, make: MakeCache) -> Play {
    Arc::new(move || scenario.play(&make))
}

fn naive(flaw: Flaw) -> MakeCache {
    Arc::new(move || -> Arc<dyn Cache> { Arc::new(Naive::new(flaw)) })
}

/// All scenarios, by name.
const SCENARIOS: [(&str, Scenario); 13] = [
    ("written_back", Scenario::WRITTEN_BACK),
    ("two_evictors", Scenario::TWO_EVICTORS),
    ("exclusive", Scenario::EXCLUSIVE),
    ("refused", Scenario::REFUSED),
    ("limited", Scenario::LIMITED),
    ("crowd", Scenario::CROWD),
    ("compressors", Scenario::COMPRESSORS),
    ("swapped_off", Scenario::SWAPPED_OFF),
    ("compacted", Scenario::COMPACTED),
    ("compacted_exclusive", Scenario::COMPACTED_EXCLUSIVE),
    ("recompressed", Scenario::RECOMPRESSED),
    ("packed", Scenario::PACKED),
    ("everything", Scenario::EVERYTHING),
];

/// Makes a test for each scenario.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for &index in INDEXES {
                    let make = move || -> Arc<dyn Cache> { Arc::new(Engine::new(index, CPUS)) };
                    holds(stringify!($test), index.0, &on($scenario, Arc::new(make)));
                }
            }
        )*
    };
}

scenario::all!(scenarios);

/// Makes a test for each scenario of an area as a block device, and of frees of its pages.
macro_rules! devices {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for &index in INDEXES {
                    let make: MakeEngine = Arc::new(move || Engine::new(index, CPUS));
                    let play: Play = Arc::new(move || $scenario.play(&make));
                    holds(stringify!($test), index.0, &play);
                }
            }
        )*
    };
}

device_scenario::all!(devices);

frees_scenario::all!(devices);

/// The copy behind the broken indexes is right without a flaw.
#[test]
fn a_faithful_copy_of_an_index_holds() {
    let play = on(Scenario::WRITTEN_BACK, indexed(broken_index::Flaw::None));
    holds("a_faithful_copy_of_an_index_holds", "", &play);
}

#[test]
fn a_naive_cache_holds() {
    for (name, scenario) in SCENARIOS {
        holds("a_naive_cache_holds", name, &on(scenario, naive(Flaw::None)));
    }
}

controls! {
    taking_another_out_is_found: on(Scenario::WRITTEN_BACK, naive(Flaw::TakesAnother));
    taking_another_out_is_found_by_crowds: on(Scenario::CROWD, naive(Flaw::TakesAnother));
    leaving_too_soon_is_found: on(Scenario::WRITTEN_BACK, naive(Flaw::LeavesTooSoon));
    refusing_too_soon_is_found: on(Scenario::REFUSED, naive(Flaw::RefusesTooSoon));
    old_pages_behind_refused_ones_are_found: on(Scenario::REFUSED, naive(Flaw::KeepsOldOnRefusal));
    forgotten_invalidations_are_found: on(Scenario::WRITTEN_BACK, naive(Flaw::ForgetsInvalidation));
    indexes_that_ignore_words_are_found:
        on(Scenario::WRITTEN_BACK, indexed(broken_index::Flaw::IgnoresWord));
    indexes_that_take_nothing_are_found:
        on(Scenario::EXCLUSIVE, indexed(broken_index::Flaw::TakesNothing));
    pages_that_were_taken_are_found: on(Scenario::EXCLUSIVE, naive(Flaw::KeepsWhatWasTaken));
}
