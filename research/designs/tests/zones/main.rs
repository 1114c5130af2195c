//! The suite of zones (`crates/pagealloc/tests/suite`) for the designs that the product does not ship.
#![cfg(not(loom))]

#[path = "../../../../crates/pagealloc/tests/suite/bad_frees.rs"]
mod bad_frees;
#[path = "../../../../crates/pagealloc/tests/suite/bitmap.rs"]
mod bitmap;
#[path = "../../../../crates/pagealloc/tests/suite/checks.rs"]
#[allow(dead_code)]
mod checks;
#[path = "../../../../crates/pagealloc/tests/suite/crowd.rs"]
mod crowd;
#[path = "../../../../crates/pagealloc/tests/suite/design.rs"]
mod design;
#[path = "../../../../crates/pagealloc/tests/suite/each.rs"]
mod each;
#[path = "../../../../crates/pagealloc/tests/suite/exhaustive.rs"]
mod exhaustive;
#[path = "../../../../crates/pagealloc/tests/suite/free.rs"]
#[allow(dead_code)]
mod free;
mod list_zones;
#[path = "../../../../crates/pagealloc/tests/suite/model.rs"]
#[allow(dead_code)]
mod model;
#[cfg(asan)]
#[path = "../../../../crates/pagealloc/tests/suite/poison.rs"]
mod poison;
#[path = "../../../../crates/pagealloc/tests/suite/provider.rs"]
#[allow(dead_code)]
mod provider;
#[path = "../../../../crates/pagealloc/tests/suite/rest.rs"]
#[allow(dead_code)]
mod rest;
mod tested;

each::designs! {
    spin: "spin";
    rwlock_range: "rwlock-range";
    splice: "splice";
    premerge: "premerge";
    no_merge: "no-merge";
    no_merge_cluster: "no-merge-cluster";
}
