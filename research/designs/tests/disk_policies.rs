//! Tests a disk with every policy of streams that the product does not ship: the suite of block
//! devices during an administrator's operations, crowds on the same pages, and memory limits.
//! `disk.rs` and `post.rs` test the default policy, with more of each.
#![cfg(not(loom))]

#[path = "../../../testing/sim/tests/common/mod.rs"]
mod common;
#[path = "common/streams.rs"]
mod streams;

use std::sync::atomic::{AtomicU32, Ordering};

use common::Plan;
use common::bench::Design;
use designs::SLOT_TABLES;
use sim::events::Weights;
use sim::model::{Drive, drive};
use sim::suite::{self, Crowd};
use streams::{OTHER_STREAMS, policy};
use testkit::{Rng, seed};
use units::PAGE_SIZE;

const P: u64 = PAGE_SIZE as u64;

/// Every policy on a disk whose readers need a stream.
fn plans(bytes: u64) -> impl Iterator<Item = Plan> {
    OTHER_STREAMS.into_iter().map(move |(streams, max_streams)| Plan {
        design: Design { streams: policy(streams), ..Design::PRODUCT },
        max_streams,
        backing_pages: bytes / P / 2 + 8,
        ..Plan::new(bytes, zcomp::ZSTD)
    })
}

#[test]
fn every_policy_has_a_test() {
    let tested = |name: &&str| OTHER_STREAMS.iter().any(|(streams, _)| streams == name);
    assert!(designs::STREAM_POLICIES[1..].iter().all(tested));
}

#[test]
fn every_policy_passes_the_suite() {
    let seed = seed("every_policy_passes_the_suite");
    for plan in plans(0) {
        suite::block_device(seed, |bytes| {
            let plan = Plan { bytes, backing_pages: bytes / P / 2 + 8, ..plan };
            Plan { compact_every: 31, meddle_every: 7, ..plan }.device()
        });
    }
}

#[test]
fn crowds_on_the_same_pages_get_along() {
    let mut rng = Rng::new(seed("crowds_on_the_same_pages_get_along"));
    for plan in plans(16 * P) {
        // A store without space may wait for a reader, and the reader needs a stream.
        for slots in [Design::PRODUCT.slots, *SLOT_TABLES.last().expect("epoch")] {
            let disk = Plan { design: Design { slots, ..plan.design }, ..plan }.build();
            let round = AtomicU32::new(0);
            let meddle = || disk.meddle(round.fetch_add(1, Ordering::Relaxed));
            let crowd = Crowd { beside: &meddle, ..Crowd::new(rng.next_u64()) };
            suite::hot_pages(&disk, crowd);
            suite::neighbours(&disk, Crowd { seed: rng.next_u64(), ..crowd });
        }
    }
}

#[test]
fn a_store_that_waits_for_readers_holds_no_stream() {
    let mut rng = Rng::new(seed("a_store_that_waits_for_readers_holds_no_stream"));
    for plan in plans(64 * P) {
        let slots = *SLOT_TABLES.last().expect("epoch");
        let design = Design { slots, ..plan.design };
        let crowded = Plan { design, mem_limit: 3 * P, backing_pages: 0, ..plan }.build();
        let round = AtomicU32::new(0);
        let change = || {
            let count = 1 + round.fetch_add(1, Ordering::Relaxed) % 3;
            let _ = crowded.disk.set_max_streams(count);
        };
        let crowd = Crowd { may_refuse: true, beside: &change, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&crowded, crowd);
    }
}

#[test]
fn every_byte_stays_under_every_policy() {
    let mut rng = Rng::new(seed("every_byte_stays_under_every_policy"));
    const THREADS: u64 = 4;
    const PAGES: u64 = 100;
    for plan in plans(THREADS * PAGES * P) {
        let disk =
            Plan { compressed_writeback: true, cpus: 2, backing_faults: 2000, ..plan }.build();
        let round = AtomicU32::new(0);
        let meddle = || disk.meddle(round.fetch_add(1, Ordering::Relaxed));
        let seeds: Vec<u64> = (0..THREADS).map(|_| rng.next_u64()).collect();
        let weights = Weights { write_pages: 40, discard: 8, ..Weights::default() };
        let tasks = seeds.iter().enumerate().map(|(n, seed)| -> Box<dyn FnOnce() + Send + '_> {
            let part = sim::part::Part::new(&disk, n as u64 * PAGES * P, PAGES * P);
            let drive = Drive { weights, may_fill_up: true, ..Drive::new(*seed, 1500) };
            Box::new(move || {
                drive.run(&part);
            })
        });
        suite::together(tasks.collect(), &meddle);
    }
}

#[test]
fn resets_leave_nothing_behind() {
    let mut rng = Rng::new(seed("resets_leave_nothing_behind"));
    for plan in plans(100 * P) {
        let disk = plan.build();
        drive(&disk, rng.next_u64(), 500);
        disk.disk.reset().expect("nobody uses it");
        assert_eq!(disk.frames.stats().allocated, 0, "{plan:?}: a reset kept frames");
        assert_eq!(disk.disk.max_streams(), 1, "{plan:?}: a reset puts the number back");
        // Under `single` this may change the kind of streams.
        let wanted = if plan.design.streams.0 == "mutex" { 1 } else { 2 };
        disk.disk.set_max_streams(wanted).expect("no size");
        disk.set_up(Plan { bytes: 50 * P, max_streams: 0, ..plan });
        drive(&disk, rng.next_u64(), 200);
    }
}
