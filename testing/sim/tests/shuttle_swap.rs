//! Caches of swap devices under shuttle: stores, loads, invalidations, refusals and areas turned
//! off beside those who write pages back. Every byte is checked. Broken caches must be found out by
//! the same worlds. See `shuttle.rs` and docs/TESTING.md for how it is run.
#![cfg(shuttle)]

#[path = "common/broken_index.rs"]
mod broken_index;
#[path = "common/swap.rs"]
mod common;
#[path = "shuttle/swap_device_stage.rs"]
mod device_stage;
#[path = "shuttle/explore.rs"]
mod explore;
#[path = "shuttle/history.rs"]
mod history;
#[path = "shuttle/swap_stage.rs"]
mod stage;

use std::sync::Arc;

use common::{Engine, with_index};
use device_stage::{MakeEngine, World as Device};
use explore::{Play, holds, rejected};
use sim::swap::{Cache, Flaw, Naive};
use stage::{MakeCache, World};

/// The engine with an index that is broken.
fn indexed(flaw: broken_index::Flaw) -> MakeCache {
    Arc::new(move || -> Arc<dyn Cache> { Arc::new(with_flaw!(flaw, with_index(CPUS))) })
}

/// CPUs there are: fewer than threads, so that some share one.
const CPUS: usize = 2;

fn on(world: World, make: MakeCache) -> Play {
    Arc::new(move || world.play(&make))
}

fn naive(flaw: Flaw) -> MakeCache {
    Arc::new(move || -> Arc<dyn Cache> { Arc::new(Naive::new(flaw)) })
}

/// All worlds, by name.
const WORLDS: [(&str, World); 9] = [
    ("written_back", World::WRITTEN_BACK),
    ("two_evictors", World::TWO_EVICTORS),
    ("exclusive", World::EXCLUSIVE),
    ("refused", World::REFUSED),
    ("limited", World::LIMITED),
    ("crowd", World::CROWD),
    ("compressors", World::COMPRESSORS),
    ("swapped_off", World::SWAPPED_OFF),
    ("everything", World::EVERYTHING),
];

/// A test for each world: it holds with every index.
macro_rules! worlds {
    ($($test:ident: $world:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for index in designs::INDEXES {
                    let make = move || -> Arc<dyn Cache> { Arc::new(Engine::of_stack(index, CPUS)) };
                    holds(stringify!($test), index, &on($world, Arc::new(make)));
                }
            }
        )*
    };
}

worlds! {
    pages_are_written_back: World::WRITTEN_BACK;
    two_write_back: World::TWO_EVICTORS;
    pages_are_taken_out: World::EXCLUSIVE;
    pages_are_refused: World::REFUSED;
    limits: World::LIMITED;
    crowds: World::CROWD;
    compressors: World::COMPRESSORS;
    areas_are_turned_off: World::SWAPPED_OFF;
    everything: World::EVERYTHING;
}

/// The same for areas as block devices.
macro_rules! devices {
    ($($test:ident: $world:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for index in designs::INDEXES {
                    let make: MakeEngine = Arc::new(move || Engine::of_stack(index, CPUS));
                    let play: Play = Arc::new(move || $world.play(&make));
                    holds(stringify!($test), index, &play);
                }
            }
        )*
    };
}

devices! {
    devices_are_written_back: Device::WRITTEN_BACK;
    devices_are_written_back_by_two: Device::TWO_EVICTORS;
    devices_are_written_through: Device::WRITTEN_THROUGH;
    devices_with_limits: Device::LIMITED;
    devices_are_turned_off: Device::SWAPPED_OFF;
    everything_of_devices: Device::EVERYTHING;
}

/// The copy that broken indexes are made from is right but for the flaw.
#[test]
fn a_faithful_copy_of_an_index_holds() {
    let play = on(World::WRITTEN_BACK, indexed(broken_index::Flaw::None));
    holds("a_faithful_copy_of_an_index_holds", "", &play);
}

#[test]
fn a_naive_cache_holds() {
    for (name, world) in WORLDS {
        holds("a_naive_cache_holds", name, &on(world, naive(Flaw::None)));
    }
}

/// A test for each broken cache: some world finds it out.
macro_rules! controls {
    ($($test:ident: $world:expr, $make:expr;)*) => {
        $(
            #[test]
            fn $test() {
                rejected(stringify!($test), &on($world, $make));
            }
        )*
    };
}

controls! {
    taking_another_out_is_found: World::WRITTEN_BACK, naive(Flaw::TakesAnother);
    taking_another_out_is_found_by_crowds: World::CROWD, naive(Flaw::TakesAnother);
    leaving_too_soon_is_found: World::WRITTEN_BACK, naive(Flaw::LeavesTooSoon);
    refusing_too_soon_is_found: World::REFUSED, naive(Flaw::RefusesTooSoon);
    old_pages_behind_refused_ones_are_found: World::REFUSED, naive(Flaw::KeepsOldOnRefusal);
    forgotten_invalidations_are_found: World::WRITTEN_BACK, naive(Flaw::ForgetsInvalidation);
    indexes_that_ignore_words_are_found:
        World::WRITTEN_BACK, indexed(broken_index::Flaw::IgnoresWord);
    indexes_that_take_nothing_are_found:
        World::EXCLUSIVE, indexed(broken_index::Flaw::TakesNothing);
    pages_that_were_taken_are_found: World::EXCLUSIVE, naive(Flaw::KeepsWhatWasTaken);
}
