//! The scenarios of testing/sim/tests/shuttle_swap.rs with the indexes of swap areas that the
//! product does not ship.
#![cfg(shuttle)]

#[path = "../../../testing/sim/tests/common/swap.rs"]
mod common;
#[path = "../../../testing/sim/tests/shuttle/swap_device_scenario.rs"]
mod device_scenario;
#[path = "../../../testing/sim/tests/shuttle/explore.rs"]
mod explore;
#[path = "../../../testing/sim/tests/shuttle/history.rs"]
mod history;
#[path = "../../../testing/sim/tests/shuttle/swap_scenario.rs"]
mod scenario;

use std::sync::Arc;

use common::Engine;
use designs::INDEX_KINDS;
use device_scenario::{MakeEngine, Scenario as Device};
use explore::{Play, holds};
use scenario::{MakeCache, Scenario};
use sim::swap::Cache;

/// The number of CPUs. It is below the number of threads, so that some share a CPU.
const CPUS: usize = 2;

fn on(scenario: Scenario, make: MakeCache) -> Play {
    Arc::new(move || scenario.play(&make))
}

/// Makes a test for each scenario.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for &index in &INDEX_KINDS[1..] {
                    let make = move || -> Arc<dyn Cache> { Arc::new(Engine::new(index, CPUS)) };
                    holds(stringify!($test), index.0, &on($scenario, Arc::new(make)));
                }
            }
        )*
    };
}

scenario::all!(scenarios);

/// Makes a test for each scenario of an area as a block device.
macro_rules! devices {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for &index in &INDEX_KINDS[1..] {
                    let make: MakeEngine = Arc::new(move || Engine::new(index, CPUS));
                    let play: Play = Arc::new(move || $scenario.play(&make));
                    holds(stringify!($test), index.0, &play);
                }
            }
        )*
    };
}

device_scenario::all!(devices);
