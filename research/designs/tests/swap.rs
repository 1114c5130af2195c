//! The tests of caches of swap areas (`testing/sim/tests`) with the indexes that the product does
//! not ship.
#![cfg(not(loom))]
#![allow(clippy::duplicate_mod, reason = "each file of tests names what it needs")]

use designs::INDEX_KINDS;
use zswap::index::MakeIndex;

/// All but the product's.
const INDEXES: &[(&str, Option<MakeIndex>)] = INDEX_KINDS.split_at(1).1;

#[path = "../../../testing/sim/tests/indexes.rs"]
#[allow(unused_imports)]
mod indexes;
#[path = "../../../testing/sim/tests/swap.rs"]
#[allow(unused_imports)]
mod swap;
#[path = "../../../testing/sim/tests/swap_device.rs"]
#[allow(unused_imports)]
mod swap_device;

#[path = "common/copied_index.rs"]
mod copied_index;
#[path = "common/radix_copy.rs"]
mod copy;

/// The copy of a tree that has flaws in other tests is right without one.
#[test]
fn a_copy_without_a_flaw_passes() {
    let copied = |pages, entries| -> Box<dyn zswap::Index> {
        Box::new(copied_index::Copied::new(copy::Flaw::None, 6, pages, entries))
    };
    sim::indexes::histories(testkit::seed("a_copy_without_a_flaw_passes"), &copied);
}
