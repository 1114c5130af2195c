//! The test of the heap (`testing/sim/tests/no_heap.rs`) with the designs that the product does not
//! ship. It is alone in its file for the same reason.
#![cfg(not(loom))]

use designs::{INDEX_KINDS, SLOT_TABLES};
use testkit::CountingHeap;
use zswap::index::MakeIndex;

#[path = "common/streams.rs"]
mod streams;

#[path = "../../../testing/sim/tests/no_heap.rs"]
#[allow(unused_imports)]
mod no_heap;

use no_heap::common::Plan;
use no_heap::common::bench::Design;
use streams::{OTHER_STREAMS, policy};

/// All but the product's.
const INDEXES: &[(&str, Option<MakeIndex>)] = INDEX_KINDS.split_at(1).1;

fn allocates_nothing(plan: Plan) {
    let (contents, disk) = (no_heap::contents(), plan.build());
    for round in 0..4 {
        let calls = CountingHeap::calls_of(|| no_heap::work(&disk, &contents, round));
        assert_eq!(calls, 0, "{:?}: round {round} called the heap", plan.design);
    }
}

#[test]
fn the_data_path_of_other_designs_allocates_nothing() {
    let plan = Plan::new(no_heap::PAGES * units::PAGE_SIZE as u64, zcomp::LZ4);
    for &slots in &SLOT_TABLES[1..] {
        allocates_nothing(Plan { design: Design { slots, ..plan.design }, ..plan });
    }
    for (streams, max_streams) in OTHER_STREAMS {
        let design = Design { streams: policy(streams), ..plan.design };
        allocates_nothing(Plan { design, max_streams, ..plan });
    }
}
