//! The scenarios of testing/sim/tests/shuttle.rs with the slot schemes, the policies of streams and
//! the indexes of swap areas that the product does not ship. `testing/mutants` has what they must
//! reject.
#![cfg(shuttle)]

#[path = "../../../testing/sim/tests/common/bench.rs"]
mod bench;
#[path = "../../../testing/sim/tests/shuttle/explore.rs"]
mod explore;
#[path = "../../../testing/sim/tests/shuttle/history.rs"]
mod history;
#[path = "../../../testing/sim/tests/shuttle/indexes.rs"]
mod indexes;
#[path = "../../../testing/sim/tests/shuttle/scenario.rs"]
mod scenario;
#[path = "../../../testing/sim/tests/shuttle/subjects.rs"]
mod subjects;
#[path = "../../../testing/sim/tests/shuttle/tables.rs"]
mod tables;
#[path = "../../../testing/sim/tests/shuttle/tally.rs"]
mod tally;

use std::sync::Arc;

use bench::Design;
use designs::indexes::{Forest, RadixTrees, RedBlackTrees, Trees};
use designs::slots::{Cas, Epoch, GlobalRwLock, RwLock, SpinLock};
use designs::{POLICIES, SLOT_TABLES};
use explore::{Play, holds};
use scenario::Scenario;
use subjects::scheme;
use zram::slots::SlotTable;
use zswap::{Index, MAX_OFFSETS};

/// A disk of this design in a scenario.
fn on(scenario: Scenario, design: Design) -> Play {
    Arc::new(move || scenario.play(design))
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
                for slots in &SLOT_TABLES[1..] {
                    holds(stringify!($test), slots.0, &on($scenario, scheme(*slots)));
                }
            }
        )*
    };
}

scenario::all!(scenarios);

#[test]
fn tables_alone() {
    let tables = [
        (GlobalRwLock::NAME, alone::<GlobalRwLock>()),
        (Cas::NAME, alone::<Cas>()),
        (SpinLock::NAME, alone::<SpinLock>()),
        (RwLock::NAME, alone::<RwLock>()),
        (Epoch::NAME, alone::<Epoch>()),
    ];
    let names = tables.each_ref().map(|table| table.0);
    assert_eq!(names, designs::SLOT_SCHEMES[1..], "a scheme is missing here");
    tables.iter().for_each(|(name, play)| holds("tables_alone", name, play));
}

/// All but `mutex`, whose sleepers shuttle would not know of.
#[test]
fn policies_of_streams() {
    for &streams in POLICIES[1..].iter().filter(|policy| policy.0 != "mutex") {
        for scenario in [Scenario::STREAMS, Scenario::RECOMPRESSED] {
            for slots in [Design::PRODUCT.slots, *SLOT_TABLES.last().expect("epoch")] {
                let design = Design { streams, ..scheme(slots) };
                holds("policies_of_streams", streams.0, &on(scenario, design));
            }
        }
    }
}

/// Every kind of tree, one and in parts of sixteen pages.
#[test]
fn indexes_of_swap_areas() {
    let plays = [
        ("rbtree", indexes::on(trees::<RedBlackTrees, MAX_OFFSETS>)),
        ("rbtree-split", indexes::on(trees::<RedBlackTrees, 16>)),
        ("xarray", indexes::on(trees::<RadixTrees, MAX_OFFSETS>)),
        ("xarray-split", indexes::on(trees::<RadixTrees, 16>)),
    ];
    plays.iter().for_each(|(name, play)| holds("indexes_of_swap_areas", name, play));
}

/// The index of trees of this kind.
fn trees<F: Forest + 'static, const EACH: u64>() -> Box<dyn Index> {
    indexes::make::<Trees<F, EACH>>()
}
