//! The whole engine under shuttle, which runs one thread at a time and decides by chance who is
//! next at each atomic operation: stores, loads, parts of pages and discards beside compaction,
//! writeback, compressing again, idle marks, other codecs, limits, sizes and resets, under every
//! slot scheme. Every byte is checked. The same scenarios must reject broken slot tables and indexes;
//! `testing/mutants` has the engines that they must reject.
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
#[path = "../../../research/designs/tests/common/broken_epochs.rs"]
mod broken_epochs;
#[path = "common/broken_indexes.rs"]
mod broken_indexes;
#[path = "../../../research/designs/tests/common/radix_copy.rs"]
mod copy;
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
#[path = "shuttle/subjects.rs"]
mod subjects;

#[path = "shuttle/tables.rs"]
mod tables;
#[path = "shuttle/tally.rs"]
mod tally;

use std::sync::Arc;

use broken::{FreesAtOnce, HoldsNothing, LosesUpdates};
use broken_epochs::{EpochInTime, EpochOfNone, EpochTooEarly, EpochTooShort};
use broken_indexes::{Copied, Over, Wrong};
use copy::Flaw as TreeFlaw;
use designs::indexes::{RadixTrees, RedBlackTrees};
use designs::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
use explore::{Play, holds, rejected};
use scenario::Scenario;
use subjects::{IgnoresClaims, LooksOnce, Subject, policy, scheme, table};
use zram::slots::{BitLock, SlotTable};
use zswap::MAX_OFFSETS;
use zswap::index::Flat;

/// A disk of this kind in a scenario.
fn on(scenario: Scenario, subject: Subject) -> Play {
    Arc::new(move || scenario.play(&subject))
}

/// A slot table alone.
fn alone<T: SlotTable + 'static>() -> Play {
    Arc::new(tables::play::<T>)
}

/// Makes a test for each scenario. All schemes must pass it.
macro_rules! scenarios {
    ($($test:ident: $scenario:expr;)*) => {
        $(
            #[test]
            fn $test() {
                for slots in designs::SLOT_SCHEMES {
                    holds(stringify!($test), slots, &on($scenario, scheme(slots)));
                }
            }
        )*
    };
}

scenarios! {
    crowds: Scenario::CROWD;
    crowds_whose_readers_need_streams: Scenario::STREAMS;
    compaction: Scenario::COMPACTED;
    compaction_of_idle_pages: Scenario::IDLE;
    compaction_beside_post_processing: Scenario::COMPACTED_BESIDE;
    writeback: Scenario::WRITTEN_BACK;
    compressed_writeback_to_one_block: Scenario::ONE_BLOCK;
    writeback_to_one_block: Scenario::ONE_PLAIN_BLOCK;
    compressing_again_and_other_codecs: Scenario::RECOMPRESSED;
    packing_and_sharing: Scenario::DENSE;
    tiers: Scenario::TIERS;
    tiers_and_the_backing_device: Scenario::OUT;
    sharing: Scenario::SHARED;
    compaction_of_shared_objects: Scenario::SHARED_AND_MOVED;
    limits: Scenario::LIMITED;
    when_full_writers_wait: Scenario::WAITING;
    when_full_many_writers_wait: Scenario::CROWDED;
    when_full_pages_move_down: Scenario::PRESSED;
    sizes_and_resets: Scenario::RESET;
    everything: Scenario::EVERYTHING;
}

#[test]
fn tables_alone() {
    let tables = [
        (BitLock::NAME, alone::<BitLock>()),
        (GlobalRwLock::NAME, alone::<GlobalRwLock>()),
        (Cas::NAME, alone::<Cas>()),
        (SpinLock::NAME, alone::<SpinLock>()),
        (RwLock::NAME, alone::<RwLock>()),
        (Epoch::NAME, alone::<Epoch>()),
    ];
    let names = tables.each_ref().map(|table| table.0);
    assert_eq!(names, designs::SLOT_SCHEMES, "a scheme is missing here");
    tables.iter().for_each(|(name, play)| holds("tables_alone", name, play));
}

#[test]
fn writers_make_room_for_themselves() {
    holds("writers_make_room_for_themselves", BitLock::NAME, &(Arc::new(room::play) as Play));
}

/// All but `mutex`, whose sleepers shuttle would not know of.
#[test]
fn policies_of_streams() {
    for streams in designs::STREAM_POLICIES.iter().filter(|name| **name != "mutex") {
        for scenario in [Scenario::STREAMS, Scenario::RECOMPRESSED] {
            for slots in [BitLock::NAME, Epoch::NAME] {
                holds("policies_of_streams", streams, &on(scenario, policy(slots, streams)));
            }
        }
    }
}

/// A table, and every kind of tree, one and in parts of sixteen pages.
#[test]
fn indexes_of_swap_areas() {
    let plays = [
        ("flat", indexes::on(indexes::make::<Flat>)),
        ("rbtree", indexes::on(indexes::trees::<RedBlackTrees, MAX_OFFSETS>)),
        ("rbtree-split", indexes::on(indexes::trees::<RedBlackTrees, 16>)),
        ("xarray", indexes::on(indexes::trees::<RadixTrees, MAX_OFFSETS>)),
        ("xarray-split", indexes::on(indexes::trees::<RadixTrees, 16>)),
        ("a copy", copied(TreeFlaw::None)),
        ("over another", over(Wrong::Nothing)),
    ];
    plays.iter().for_each(|(name, play)| holds("indexes_of_swap_areas", name, play));
}

/// A copy of the radix tree.
fn copied(flaw: TreeFlaw) -> Play {
    indexes::on(move || Box::new(Copied::new(flaw, 2, indexes::PAGES, indexes::ENTRIES)))
}

/// The radix tree inside an index with a fault.
fn over(wrong: Wrong) -> Play {
    indexes::on(move || {
        let index = indexes::trees::<RadixTrees, MAX_OFFSETS>();
        Box::new(Over { index, wrong })
    })
}

/// Makes a test for each broken engine. Some scenario must reject it.
macro_rules! controls {
    ($($test:ident: $play:expr;)*) => {
        $(
            #[test]
            fn $test() {
                rejected(stringify!($test), &$play);
            }
        )*
    };
}

controls! {
    publishing_and_freeing_at_once_is_found: on(Scenario::CROWD, table::<FreesAtOnce>());
    losing_updates_is_found: on(Scenario::CROWD, table::<LosesUpdates>());
    readers_who_hold_nothing_are_found: on(Scenario::CROWD, table::<HoldsNothing>());
    epochs_that_nobody_waits_for_are_found: on(Scenario::CROWD, table::<EpochOfNone>());
    epochs_that_are_too_short_are_found: on(Scenario::CROWD, table::<EpochTooShort>());
    epochs_that_end_too_early_are_found: alone::<EpochTooEarly>();
    slots_that_are_not_looked_at_again_are_found: on(Scenario::ONE_PLAIN_BLOCK, table::<LooksOnce>());
    old_pages_that_are_compressed_again_are_found:
        on(Scenario::RECOMPRESSED, table::<IgnoresClaims>());
    old_pages_that_leave_by_themselves_are_found: on(Scenario::OUT, table::<IgnoresClaims>());
    lookups_that_look_at_no_life_are_found: copied(TreeFlaw::LooksAtNoLife);
    lookups_that_look_before_they_read_are_found: copied(TreeFlaw::LooksBefore);
    nodes_that_are_used_again_too_early_are_found: copied(TreeFlaw::EndsNoLife);
    nodes_that_are_taken_out_with_an_entry_are_found: copied(TreeFlaw::EndsTooEarly);
    nodes_that_are_kept_are_found: copied(TreeFlaw::KeepsEmptyNodes);
    lookups_that_miss_what_is_replaced_are_found: copied(TreeFlaw::ReplacesInSteps);
    entries_that_are_replaced_in_steps_are_found: over(Wrong::ReplacesInSteps);
    entries_that_are_removed_in_steps_are_found: over(Wrong::RemovesInSteps);
    removing_another_life_is_found: over(Wrong::IgnoresLives);
    entries_that_are_lost_when_replaced_are_found: over(Wrong::LosesDisplaced);
    drains_that_leave_something_are_found: over(Wrong::DrainsTooLittle);
}

/// The copies behind the controls are right without a flaw.
#[test]
fn faithful_copies_hold() {
    let holds = |play| holds("faithful_copies_hold", "", &play);
    holds(alone::<EpochInTime>());
    holds(on(Scenario::ONE_PLAIN_BLOCK, table::<BitLock>()));
    holds(on(Scenario::COMPACTED, table::<BitLock>()));
}
