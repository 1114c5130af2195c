//! Tests a disk with every slot scheme that the product does not ship: the suite of block devices,
//! compaction, an administrator's operations while threads use the pages, and limits. The tests of
//! testing/sim have the product's, with more of each.
#![cfg(not(loom))]
#![allow(clippy::duplicate_mod, reason = "each file of tests names what it needs")]

#[path = "../../../testing/sim/tests/common/mod.rs"]
mod common;
#[path = "../../../testing/sim/tests/compaction.rs"]
#[allow(unused_imports)]
mod compaction;

use std::sync::atomic::{AtomicU32, Ordering};

use block::{BlockDevice, Operation};
use common::bench::{Design, Slots};
use common::{LAYOUTS, Plan};
use designs::SLOT_TABLES;
use sim::content::Fill;
use sim::events::Weights;
use sim::model::{Drive, drive};
use sim::suite::{self, Crowd};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};
use zram::{Share, WhenFull};

const P: u64 = PAGE_SIZE as u64;

/// The quick codec. Under a sanitizer it is one written in Rust, because the sanitizer sees its
/// reads.
const QUICK: &str = if cfg!(asan) { zcomp::LZO } else { zcomp::LZ4 };

/// What compaction is tested with: a scheme under which places wait to be freed.
const SLOTS: &[Slots] = SLOT_TABLES.split_at(SLOT_TABLES.len() - 1).1;

/// The slot schemes of others.
const OTHERS: &[Slots] = SLOT_TABLES.split_at(1).1;

fn of(slots: Slots) -> Design {
    Design { slots, ..Design::PRODUCT }
}

fn plan(slots: Slots, bytes: u64, algorithm: &'static str) -> Plan {
    let design = of(slots);
    Plan { design, backing_pages: bytes / P / 2 + 8, ..Plan::new(bytes, algorithm) }
}

#[test]
fn every_scheme_passes_the_suite() {
    let seed = seed("every_scheme_passes_the_suite");
    for &slots in OTHERS {
        suite::block_device(seed, |bytes| {
            let plan = plan(slots, bytes, QUICK);
            Plan { compact_every: 31, meddle_every: 7, ..plan }.device()
        });
    }
}

#[test]
fn limits_are_kept_and_waiting_objects_do_not_count() {
    let mut rng = Rng::new(seed("limits_are_kept_and_waiting_objects_do_not_count"));
    for &slots in OTHERS {
        let limit = 40 * P;
        // A codec whose readers need a stream. A store that waits must not hold that stream.
        let plan =
            |bytes| Plan { design: of(slots), mem_limit: limit, ..Plan::new(bytes, zcomp::ZSTD) };
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
        let disk = Plan { design: of(slots), ..Plan::new(2 * P, QUICK) }.build();
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
fn crowds_on_the_same_pages_get_along() {
    let mut rng = Rng::new(seed("crowds_on_the_same_pages_get_along"));
    for &slots in OTHERS {
        let disk = Plan { backing_pages: 6, ..plan(slots, 16 * P, QUICK) }.build();
        let round = AtomicU32::new(0);
        let meddle = || disk.meddle(round.fetch_add(1, Ordering::Relaxed));
        let crowd = Crowd { beside: &meddle, ..Crowd::new(rng.next_u64()) };
        suite::hot_pages(&disk, crowd);
        suite::neighbours(&disk, Crowd { seed: rng.next_u64(), ..crowd });
    }
}

#[test]
fn every_byte_stays_under_every_scheme() {
    let mut rng = Rng::new(seed("every_byte_stays_under_every_scheme"));
    const THREADS: u64 = 4;
    const PAGES: u64 = 100;
    for &slots in OTHERS {
        let plan = plan(slots, THREADS * PAGES * P, QUICK);
        let disk =
            Plan { compressed_writeback: true, cpus: 2, backing_faults: 2000, ..plan }.build();
        let round = AtomicU32::new(0);
        let meddle = || disk.meddle(round.fetch_add(1, Ordering::Relaxed));
        let seeds: Vec<u64> = (0..THREADS).map(|_| rng.next_u64()).collect();
        let weights = Weights { write_pages: 40, discard: 8, ..Weights::default() };
        let tasks = seeds.iter().enumerate().map(|(n, seed)| -> Box<dyn FnOnce() + Send + '_> {
            let part = sim::part::Part::new(&disk, n as u64 * PAGES * P, PAGES * P);
            let events = if cfg!(asan) { 500 } else { 2000 };
            let drive = Drive { weights, may_fill_up: true, ..Drive::new(*seed, events) };
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
    for &slots in OTHERS {
        let disk = Plan { design: of(slots), ..Plan::new(100 * P, QUICK) }.build();
        drive(&disk, rng.next_u64(), 500);
        disk.disk.reset().expect("nobody uses it");
        assert_eq!(disk.frames.stats().allocated, 0, "{}: a reset kept frames", slots.0);
        disk.set_up(Plan { design: of(slots), ..Plan::new(50 * P, QUICK) });
    }
}

const POLICIES: [WhenFull; 2] = [WhenFull::Wait, WhenFull::Spill];

#[test]
fn nothing_is_refused_while_pages_can_move() {
    let mut rng = Rng::new(seed("nothing_is_refused_while_pages_can_move"));
    for (&slots, (compressed_writeback, log)) in OTHERS.iter().zip(LAYOUTS.into_iter().cycle()) {
        for when_full in POLICIES {
            let plan = Plan { when_full, compressed_writeback, log, ..plan(slots, 0, QUICK) };
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
    for &slots in OTHERS {
        for when_full in POLICIES {
            let plan = plan(slots, 16 * P, QUICK);
            let disk = Plan { mem_limit: 4 * P, when_full, backing_pages: 200, ..plan }.build();
            suite::hot_pages(&disk, Crowd::new(rng.next_u64()));
            suite::neighbours(&disk, Crowd::new(rng.next_u64()));
        }
    }
}
