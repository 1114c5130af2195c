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
