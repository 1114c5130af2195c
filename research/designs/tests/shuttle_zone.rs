//! The scenarios of testing/sim/tests/shuttle_zone.rs with the page allocators that the product
//! does not ship.
#![cfg(shuttle)]

#[path = "../../../crates/pagealloc/tests/suite/design.rs"]
mod design;
#[path = "../../../testing/sim/tests/shuttle/explore.rs"]
mod explore;
#[path = "../../../crates/pagealloc/tests/suite/free.rs"]
mod free;
#[path = "../../../testing/sim/tests/shuttle/zone_scenario.rs"]
#[allow(dead_code)]
mod scenario;
#[path = "zones/tested.rs"]
mod tested;

use std::sync::Arc;

use design::Design;
use explore::{Play, holds};
use scenario::Scenario;
use tested::DESIGNS;

fn on(scenario: Scenario, design: Design) -> Play {
    Arc::new(move || scenario.play(&design))
}

#[test]
fn no_design_is_missing() {
    let names: Vec<&str> = DESIGNS.iter().map(|design| design.name).collect();
    assert_eq!(names, designs::ZONES[1..]);
}

/// Makes a test for each scenario. All designs must pass it.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for design in DESIGNS {
                    holds(stringify!($test), design.name, &on($scenario, *design));
                }
            }
        )*
    };
}

scenario::all!(scenarios);
