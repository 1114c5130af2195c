//! The whole engine under shuttle, which runs one thread at a time and decides by chance who is
//! next at each atomic operation: stores, loads, parts of pages and discards beside compaction,
//! writeback, compressing again, idle marks, other codecs, limits, sizes and resets. Every byte is
//! checked. The same scenarios must reject broken slot tables and indexes; `testing/mutants` has
//! the engines that they must reject. research/designs/tests/shuttle.rs runs them with other
//! designs.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p rampack-sim --test shuttle --release`, in a
//! target directory of its own. Without `--cfg shuttle` this file is empty. See
//! docs/internals/testing.md for more schedules, other seeds, and one schedule again.
//!
//! Shuttle is sequentially consistent: only loom can find a missing fence (`crates/sync`). Shuttle
//! interrupts a thread only at atomic operations. So freed memory is filled with rubbish, and a
//! read of an object begins with atomic operations (`sync::prefetch`).
#![cfg(shuttle)]

#[path = "common/bench.rs"]
mod bench;
#[path = "../../../crates/zram/tests/common/broken.rs"]
mod broken;
#[path = "common/broken_index.rs"]
mod broken_index;
#[path = "shuttle/clones.rs"]
mod clones;
#[path = "shuttle/explore.rs"]
mod explore;
#[path = "shuttle/history.rs"]
mod history;
#[path = "shuttle/indexes.rs"]
mod indexes;
#[path = "shuttle/room.rs"]
mod room;
#[path = "shuttle/scenario.rs"]
mod scenario;
#[path = "shuttle/snapshots.rs"]
mod snapshots;
#[path = "shuttle/subjects.rs"]
mod subjects;
#[path = "shuttle/tables.rs"]
mod tables;
#[path = "shuttle/tally.rs"]
mod tally;

use std::sync::Arc;

use bench::{Design, SLOTS};
use broken::{FreesAtOnce, HoldsNothing, LosesUpdates};
use broken_index::{Flaw, with_flaw};
use explore::{Play, controls, holds};
use scenario::Scenario;
use subjects::{scheme, table};
use zram::slots::{BitLock, SlotTable};
use zswap::index::Flat;

/// A disk of this design in a scenario.
fn on(scenario: Scenario, design: Design) -> Play {
    Arc::new(move || scenario.play(design))
}

/// Makes a test for each scenario.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for slots in SLOTS {
                    holds(stringify!($test), slots.0, &on($scenario, scheme(*slots)));
                }
            }
        )*
    };
}

scenario::all!(scenarios);

#[test]
fn tables_alone() {
    holds("tables_alone", BitLock::NAME, &(Arc::new(tables::play::<BitLock>) as Play));
}

#[test]
fn writers_make_room_for_themselves() {
    holds("writers_make_room_for_themselves", BitLock::NAME, &(Arc::new(room::play) as Play));
}

#[test]
fn snapshots_are_of_one_instant() {
    holds("snapshots_are_of_one_instant", BitLock::NAME, &(Arc::new(snapshots::play) as Play));
}

#[test]
fn clones_are_of_one_instant() {
    holds("clones_are_of_one_instant", BitLock::NAME, &(Arc::new(clones::play) as Play));
}

#[test]
fn indexes_of_swap_areas() {
    let plays = [("flat", indexes::on(indexes::make::<Flat>)), ("broken", broken(Flaw::None))];
    plays.iter().for_each(|(name, play)| holds("indexes_of_swap_areas", name, play));
}

/// The product's index with a flaw.
fn broken(flaw: Flaw) -> Play {
    use indexes::make;
    indexes::on(move || with_flaw!(flaw, make()))
}

controls! {
    publishing_and_freeing_at_once_is_found: on(Scenario::CROWD, table::<FreesAtOnce>());
    losing_updates_is_found: on(Scenario::CROWD, table::<LosesUpdates>());
    readers_who_hold_nothing_are_found: on(Scenario::CROWD, table::<HoldsNothing>());
    entries_that_are_replaced_in_steps_are_found: broken(Flaw::ReplacesInSteps);
    entries_that_are_removed_in_steps_are_found: broken(Flaw::RemovesInSteps);
    removing_another_life_is_found: broken(Flaw::IgnoresLives);
    entries_that_are_lost_when_replaced_are_found: broken(Flaw::LosesReplaced);
    drains_that_leave_something_are_found: broken(Flaw::LeavesLast);
}

/// A table behind a pointer, as the broken ones are, is right.
#[test]
fn a_table_behind_a_pointer_holds() {
    let holds = |play| holds("a_table_behind_a_pointer_holds", "", &play);
    holds(on(Scenario::ONE_PLAIN_BLOCK, table::<BitLock>()));
    holds(on(Scenario::COMPACTED, table::<BitLock>()));
}
