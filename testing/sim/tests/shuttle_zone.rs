//! The page allocators under shuttle: threads that allocate, free each other's frames and drain,
//! where there is plenty and where memory is out, single frames and blocks. Each frame has one
//! owner at a time, `None` is only said when it is so, and in the end everything is free and merged.
//! Broken designs must be found out by the same worlds. See `shuttle.rs` and docs/TESTING.md for how
//! it is run.
#![cfg(shuttle)]

#[path = "shuttle/broken_zones.rs"]
mod broken_zones;
#[path = "../../../crates/pagealloc/tests/suite/design.rs"]
mod design;
#[path = "shuttle/explore.rs"]
mod explore;
#[path = "../../../crates/pagealloc/tests/suite/free.rs"]
mod free;
#[path = "shuttle/zone_stage.rs"]
mod stage;
#[path = "../../../research/designs/tests/zones/tested.rs"]
mod tested;

use std::sync::Arc;

use broken_zones::{Flaw, Toy};
use design::{Design, Make, PRODUCT};
use explore::{Play, holds, rejected};
use stage::World;
use tested::DESIGNS;

fn on(world: World, design: Design) -> Play {
    Arc::new(move || world.play(&design))
}

/// The product's design, and all others.
fn all() -> impl Iterator<Item = &'static Design> {
    std::iter::once(&PRODUCT).chain(DESIGNS)
}

#[test]
fn no_design_is_missing() {
    let names: Vec<&str> = all().map(|design| design.name).collect();
    assert_eq!(names, designs::ZONES);
}

/// A test for each world: all designs hold in it.
macro_rules! worlds {
    ($($test:ident: $world:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for design in all() {
                    holds(stringify!($test), design.name, &on($world, *design));
                }
            }
        )*
    };
}

worlds! {
    single_frames: World::SINGLES;
    blocks_and_their_buddies: World::BUDDIES;
    blocks_where_memory_is_short: World::SHORT;
    the_last_frames: World::LAST;
    draining: World::DRAINED;
    memory_that_comes_and_goes: World::COMING_AND_GOING;
}

/// A plain design with this flaw.
macro_rules! toy {
    ($flaw:expr) => {{
        let make: Make = |world, options| Toy::boxed(world, options, $flaw);
        Design { name: "toy", make, merges: true, returns_at_once: false }
    }};
}

/// A test for each broken design: some world finds it out.
macro_rules! controls {
    ($($test:ident: $world:expr, $flaw:expr;)*) => {
        $(
            #[test]
            fn $test() {
                rejected(stringify!($test), &on($world, toy!($flaw)));
            }
        )*
    };
}

controls! {
    taking_without_the_lock_is_found: World::SINGLES, Flaw::TakesInSteps;
    taking_without_the_lock_is_found_where_memory_is_short: World::SHORT, Flaw::TakesInSteps;
    forgetting_what_is_in_progress_is_found: World::DRAINED, Flaw::DropsInProgress;
    draining_without_the_lock_is_found: World::DRAINED, Flaw::DrainsInSteps;
    looking_into_one_stock_after_the_other_is_found: World::LAST, Flaw::LooksInTurn;
    merging_beside_another_is_found: World::BUDDIES, Flaw::MergesInSteps;
    showing_a_block_before_it_is_in_the_list_is_found: World::BUDDIES, Flaw::ShowsEarly;
}

/// The design that the broken ones are made from is right but for the flaw.
#[test]
fn a_toy_without_a_flaw_holds() {
    for (name, world) in stage::WORLDS {
        holds("a_toy_without_a_flaw_holds", name, &on(world, toy!(Flaw::None)));
    }
}
