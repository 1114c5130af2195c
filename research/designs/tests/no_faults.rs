//! The test of page faults (`testing/sim/tests/no_faults.rs`) with the indexes that the product
//! does not ship. It is alone in its file for the same reason.
#![cfg(not(loom))]

use designs::INDEX_KINDS;
use zswap::index::MakeIndex;

/// All but the product's.
const INDEXES: &[(&str, Option<MakeIndex>)] = INDEX_KINDS.split_at(1).1;

#[path = "../../../testing/sim/tests/no_faults.rs"]
#[allow(unused_imports)]
mod no_faults;
