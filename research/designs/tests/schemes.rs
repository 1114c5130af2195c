//! Tests a disk with every slot scheme, policy of streams and page allocator that the product does
//! not ship: the suite of block devices, compaction, an administrator's operations while threads
//! use the pages, limits, and churn. The tests of testing/sim have the product's, with more of each.
#![cfg(not(loom))]
#![allow(clippy::duplicate_mod, reason = "each file of tests names what it needs")]

#[path = "../../../testing/sim/tests/common/mod.rs"]
mod common;
#[path = "../../../testing/sim/tests/compaction.rs"]
#[allow(unused_imports)]
mod compaction;
#[path = "common/streams.rs"]
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::{BlockDevice, Operation};
use common::bench::{Allocator, Design, Slots};
use common::{LAYOUTS, Plan};
use designs::{ALLOCATORS, SLOT_TABLES};
use sim::content::Fill;
use sim::events::Weights;
use sim::model::{Drive, drive};
use sim::suite::{self, Crowd};
use streams::{OTHER_STREAMS, policy};
use testkit::{Rng, cases, seed};
use units::{Cpu, PAGE_SIZE};
use zram::{Share, WhenFull};

const P: u64 = PAGE_SIZE as u64;

/// The quick codec. Under a sanitizer it is one written in Rust, because the sanitizer sees its
/// reads.
const QUICK: &str = if cfg!(asan) { zcomp::LZO } else { zcomp::LZ4 };

/// What compaction is tested with: a scheme under which places wait to be freed.
const SLOTS: &[Slots] = SLOT_TABLES.split_at(SLOT_TABLES.len() - 1).1;

/// The slot schemes of others.
const SCHEMES: &[Slots] = SLOT_TABLES.split_at(1).1;
/// The page allocators of others.
const ZONES: &[Allocator] = ALLOCATORS.split_at(1).1;

const POLICIES: [WhenFull; 2] = [WhenFull::Wait, WhenFull::Spill];

fn guarded(slots: Slots, algorithm: &'static str) -> Plan {
    Plan { design: Design { slots, ..Design::PRODUCT }, ..Plan::new(0, algorithm) }
}

/// Every policy of streams on a disk whose readers need a stream.
fn with_streams() -> impl Iterator<Item = Plan> {
    OTHER_STREAMS.into_iter().map(|(streams, max_streams)| {
        let design = Design { streams: policy(streams), ..Design::PRODUCT };
        Plan { design, max_streams, ..Plan::new(0, zcomp::ZSTD) }
    })
}

fn on_zone(allocator: Allocator) -> Plan {
    Plan { design: Design { allocator, ..Design::PRODUCT }, ..Plan::new(0, zcomp::LZO) }
}

/// A disk of each design that is not the product's, without a size.
fn others() -> impl Iterator<Item = Plan> {
    let schemes = SCHEMES.iter().map(|slots| guarded(*slots, QUICK));
    schemes.chain(with_streams()).chain(ZONES.iter().map(|zone| on_zone(*zone)))
}

#[test]
fn every_policy_has_a_test() {
    let tested = |name: &&str| OTHER_STREAMS.iter().any(|(streams, _)| streams == name);
    assert!(designs::STREAM_POLICIES[1..].iter().all(tested));
}

#[test]
fn every_design_passes_the_suite() {
    let seed = seed("every_design_passes_the_suite");
    for plan in others() {
        suite::block_device(seed, |bytes| {
            Plan { compact_every: 31, meddle_every: 7, ..plan.sized(bytes) }.device()
        });
    }
}

#[test]
fn crowds_on_the_same_pages_get_along() {
    let mut rng = Rng::new(seed("crowds_on_the_same_pages_get_along"));
    // A store without space may wait for a reader, and the reader needs a stream.
    let slots = SLOTS[0];
    let waiting = with_streams()
        .map(|plan| Plan { design: Design { slots, ..plan.design }, ..plan.sized(16 * P) });
    for plan in others().map(|plan| Plan { backing_pages: 6, ..plan.sized(16 * P) }).chain(waiting)
    {
        let disk = plan.build();
        let meddle = || disk.meddle_next();
        // The product's design has three times as many.
        let rounds = cases(500);
        let crowd = Crowd { beside: &meddle, rounds, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&disk, crowd);
        suite::neighbours(&disk, Crowd { seed: rng.next_u64(), ..crowd });
    }
}

#[test]
fn every_byte_stays_under_every_design() {
    let mut rng = Rng::new(seed("every_byte_stays_under_every_design"));
    const THREADS: u64 = 4;
    const PAGES: u64 = 100;
    let events = cases(if cfg!(asan) { 800 } else { 1500 });
    let weights = Weights { write_pages: 40, discard: 8, ..Weights::default() };
    for plan in others() {
        let plan = plan.sized(THREADS * PAGES * P);
        let plan = Plan { compressed_writeback: true, cpus: 2, backing_faults: 2000, ..plan };
        let disk = Arc::new(plan.build());
        let drives = [(); THREADS as usize].map(|()| Drive {
            weights,
            may_fill_up: true,
            ..Drive::new(rng.next_u64(), events)
        });
        suite::owners(&disk, PAGES, &drives, &|| disk.meddle_next());
    }
}

#[test]
fn resets_leave_nothing_behind() {
    let mut rng = Rng::new(seed("resets_leave_nothing_behind"));
    for plan in others() {
        let disk = plan.sized(100 * P).build();
        drive(&disk, rng.next_u64(), 500);
        disk.disk.reset().expect("nobody uses it");
        assert_eq!(disk.frames.stats().allocated, 0, "{plan:?}: a reset kept frames");
        if plan.design.streams.0 != Design::PRODUCT.streams.0 {
            assert_eq!(disk.disk.max_streams(), 1, "{plan:?}: a reset puts the number back");
            let wanted = if plan.design.streams.0 == "multi" { 2 } else { 1 };
            disk.disk.set_max_streams(wanted).expect("no size");
        }
        disk.set_up(Plan { max_streams: 0, ..plan.sized(50 * P) });
        drive(&disk, rng.next_u64(), 200);
    }
}

#[test]
fn limits_are_kept_and_waiting_objects_do_not_count() {
    let mut rng = Rng::new(seed("limits_are_kept_and_waiting_objects_do_not_count"));
    for &slots in SCHEMES {
        let limit = 40 * P;
        // A codec whose readers need a stream. A store that waits must not hold that stream.
        let plan = |bytes| Plan { bytes, mem_limit: limit, ..guarded(slots, zcomp::ZSTD) };
        suite::filling_up(rng.next_u64(), |bytes| plan(bytes).device());
        // Writes half of the allowed memory repeatedly. Old versions must not take up the space.
        let disk = plan(64 * P).build();
        let mut page = [0; PAGE_SIZE];
        for n in 0..400u64 {
            Fill::Noise(n).render(&mut page);
            let write = Operation::Write { offset: n % 20 * P, from: &page };
            let done = disk.submit(Cpu(n as u32), write);
            assert_eq!(done, Ok(()), "{}: write {n} of 20 pages under a limit of 40", slots.0);
        }
        let crowded = Plan { mem_limit: 3 * P, ..plan(64 * P) }.build();
        let compact = || {
            crowded.disk.compact().expect("the disk has a size");
        };
        let crowd = Crowd { may_refuse: true, beside: &compact, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&crowded, crowd);
    }
}

/// A scheme may free a shared object some time after its last page let go of it. Its bytes count
/// until then, so the statistics free it before they count.
#[test]
fn bytes_of_shared_objects_do_not_count_when_their_pages_are_gone() {
    let mut page = [0; PAGE_SIZE];
    Fill::Text(1).render(&mut page);
    for &slots in SLOT_TABLES {
        let disk = Plan { bytes: 2 * P, ..guarded(slots, QUICK) }.build();
        for offset in [0, P] {
            disk.submit(Cpu(0), Operation::Write { offset, from: &page }).expect("there is memory");
        }
        let shared = disk.disk.share(&Share::default()).expect("it has a size");
        assert_eq!(shared, 1, "{}: one of two equal pages", slots.0);
        disk.submit(Cpu(0), Operation::Discard { offset: 0, length: 2 * P })
            .expect("discards succeed");
        let stats = disk.disk.stats();
        assert_eq!((stats.pool_bytes, stats.compressed_bytes), (0, 0), "{}: {stats:?}", slots.0);
    }
}

#[test]
fn nothing_is_refused_while_pages_can_move() {
    let mut rng = Rng::new(seed("nothing_is_refused_while_pages_can_move"));
    for (&slots, (compressed_writeback, log)) in SCHEMES.iter().zip(LAYOUTS.into_iter().cycle()) {
        for when_full in POLICIES {
            let plan = Plan { when_full, compressed_writeback, log, ..guarded(slots, QUICK) };
            let make = |bytes: u64| {
                let backing_pages = 2 * bytes / P;
                Plan { bytes, mem_limit: 100 * P, backing_pages, ..plan }.device()
            };
            suite::overflowing(rng.next_u64(), make);
        }
    }
}

/// Others take the room that a writer makes.
#[test]
fn crowds_make_room_for_each_other() {
    let mut rng = Rng::new(seed("crowds_make_room_for_each_other"));
    for &slots in SCHEMES {
        for when_full in POLICIES {
            let plan = guarded(slots, QUICK).sized(16 * P);
            let disk = Plan { mem_limit: 4 * P, when_full, backing_pages: 200, ..plan }.build();
            suite::hot_pages(&disk, Crowd::new(rng.next_u64()));
            suite::neighbours(&disk, Crowd::new(rng.next_u64()));
        }
    }
}

#[test]
fn a_store_that_waits_for_readers_holds_no_stream() {
    let mut rng = Rng::new(seed("a_store_that_waits_for_readers_holds_no_stream"));
    for plan in with_streams() {
        let design = Design { slots: SLOTS[0], ..plan.design };
        let crowded = Plan { bytes: 64 * P, design, mem_limit: 3 * P, ..plan }.build();
        let round = AtomicU32::new(0);
        let change = || {
            let count = 1 + round.fetch_add(1, Ordering::Relaxed) % 3;
            let _ = crowded.disk.set_max_streams(count);
        };
        let crowd = Crowd { may_refuse: true, beside: &change, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&crowded, crowd);
    }
}

/// The machine has little memory, so that it runs out.
#[test]
fn memory_that_is_out_comes_back() {
    let mut rng = Rng::new(seed("memory_that_is_out_comes_back"));
    for &zone in ZONES {
        let plan = |bytes| Plan { bytes, memory: 100 * P, ..on_zone(zone) };
        suite::filling_up(rng.next_u64(), |bytes| plan(bytes).device());
    }
}

/// After each round exactly the frames in the disk's statistics are allocated, and all others are
/// free and merged. An emptied disk leaves no trace in its zone.
#[test]
fn churn_leaves_nothing_behind_on_any_zone() {
    let mut rng = Rng::new(seed("churn_leaves_nothing_behind_on_any_zone"));
    const PAGES: u64 = 1500;
    for &zone in ALLOCATORS {
        let disk = Plan { bytes: PAGES * P, ..on_zone(zone) }.build();
        let frames = &disk.frames;
        let mut page = [0; PAGE_SIZE];
        for round in 0..4 {
            for index in 0..PAGES {
                let parts = rng.below(60) as u8;
                Fill::Partly { noise: rng.next_u64(), parts }.render(&mut page);
                let cpu = Cpu(rng.below(3) as u32);
                disk.disk.store_page(cpu, index, &page).expect("there is memory");
            }
            for index in 0..PAGES {
                if rng.below(5) < 2 || round == 3 {
                    disk.disk.discard_pages(Cpu(0), index, 1).expect("it is there");
                }
            }
            disk.disk.compact().expect("the disk has a size");
            frames.drain();
            frames.validate();
            let stats = frames.stats();
            let bytes = disk.disk.stats().pool_bytes;
            assert_eq!(stats.allocated * P, bytes, "{}, round {round}: {stats:?}", zone.0);
            assert_eq!((stats.cached, stats.bad_frees), (0, 0), "{}, round {round}", zone.0);
        }
        let stats = frames.stats();
        let free = (stats.allocated, stats.free_blocks[10]);
        assert_eq!(free, (0, stats.managed / 1024), "{}", zone.0);
    }
}
