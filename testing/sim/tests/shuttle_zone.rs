//! The page allocator under shuttle: threads allocate single frames and blocks, free each other's
//! frames and drain, with enough memory and without. Each frame has one owner at a time, an
//! allocation fails only if memory is out, and at the end everything is free and merged. The same
//! scenarios must reject broken designs. `shuttle.rs` and docs/internals/testing.md say how to
//! run it.
#![cfg(shuttle)]

#[path = "shuttle/broken_zones.rs"]
mod broken_zones;
#[path = "../../../crates/pagealloc/tests/suite/design.rs"]
mod design;
#[path = "shuttle/explore.rs"]
mod explore;
#[path = "../../../crates/pagealloc/tests/suite/free.rs"]
mod free;
#[path = "shuttle/zone_scenario.rs"]
mod scenario;

use std::sync::Arc;

use broken_zones::{Flaw, Toy};
use design::{Design, Make, PRODUCT};
use explore::{Play, controls, holds};
use scenario::Scenario;

fn on(scenario: Scenario, design: Design) -> Play {
    Arc::new(move || scenario.play(&design))
}

/// Makes a test for each scenario.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                holds(stringify!($test), PRODUCT.name, &on($scenario, PRODUCT));
            }
        )*
    };
}

scenario::all!(scenarios);

/// A plain design with this flaw.
macro_rules! toy {
    ($flaw:expr) => {{
        let make: Make = |scenario, options| Toy::boxed(scenario, options, $flaw);
        Design { name: "toy", make, merges: true, returns_at_once: false }
    }};
}

controls! {
    taking_without_the_lock_is_found: on(Scenario::SINGLES, toy!(Flaw::TakesInSteps));
    taking_without_the_lock_is_found_where_memory_is_short: on(Scenario::SHORT, toy!(Flaw::TakesInSteps));
    forgetting_what_is_in_progress_is_found: on(Scenario::DRAINED, toy!(Flaw::DropsInProgress));
    draining_without_the_lock_is_found: on(Scenario::DRAINED, toy!(Flaw::DrainsInSteps));
    looking_into_one_stock_after_the_other_is_found: on(Scenario::LAST, toy!(Flaw::LooksInTurn));
    merging_beside_another_is_found: on(Scenario::BUDDIES, toy!(Flaw::MergesInSteps));
    showing_a_block_before_it_is_in_the_list_is_found: on(Scenario::BUDDIES, toy!(Flaw::ShowsEarly));
}

/// The design behind the broken ones is right without a flaw.
#[test]
fn a_toy_without_a_flaw_holds() {
    for (name, scenario) in scenario::SCENARIOS {
        holds("a_toy_without_a_flaw_holds", name, &on(scenario, toy!(Flaw::None)));
    }
}
