//! Tests a disk with every page allocator that the product does not ship: the suite of block
//! devices during an administrator's operations, memory limits, and churn. Churn fills a disk,
//! frees pages at random, and fills it with pages of other sizes. `disk.rs` and `post.rs` test the
//! default design, with more of each.
#![cfg(not(loom))]

#[path = "../../../testing/sim/tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::Plan;
use common::bench::{Allocator, Design};
use designs::ALLOCATORS;
use sim::content::Fill;
use sim::events::Weights;
use sim::model::Drive;
use sim::suite::{self, Crowd};
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};

const P: u64 = PAGE_SIZE as u64;

/// The page allocators of others.
const OTHERS: &[Allocator] = ALLOCATORS.split_at(1).1;

fn of(allocator: Allocator) -> Design {
    Design { allocator, ..Design::PRODUCT }
}

fn plan(allocator: Allocator, bytes: u64) -> Plan {
    let design = of(allocator);
    Plan { design, backing_pages: bytes / P / 2 + 8, ..Plan::new(bytes, zcomp::LZO) }
}

#[test]
fn every_zone_passes_the_suite() {
    let seed = seed("every_zone_passes_the_suite");
    for &zone in OTHERS {
        suite::block_device(seed, |bytes| {
            Plan { compact_every: 31, meddle_every: 7, ..plan(zone, bytes) }.device()
        });
    }
}

/// The machine has little memory, so that it runs out.
#[test]
fn memory_that_is_out_comes_back() {
    let mut rng = Rng::new(seed("memory_that_is_out_comes_back"));
    for &zone in OTHERS {
        let plan =
            |bytes| Plan { design: of(zone), memory: 100 * P, ..Plan::new(bytes, zcomp::LZO) };
        suite::filling_up(rng.next_u64(), |bytes| plan(bytes).device());
    }
}

#[test]
fn every_byte_stays_on_every_zone() {
    let mut rng = Rng::new(seed("every_byte_stays_on_every_zone"));
    const THREADS: u64 = 4;
    const PAGES: u64 = 100;
    for &zone in OTHERS {
        let plan = Plan { cpus: 2, compressed_writeback: true, ..plan(zone, THREADS * PAGES * P) };
        let disk = plan.build();
        let round = AtomicU32::new(0);
        let meddle = || disk.meddle(round.fetch_add(1, Ordering::Relaxed));
        let seeds: Vec<u64> = (0..THREADS).map(|_| rng.next_u64()).collect();
        let weights = Weights { write_pages: 40, discard: 8, ..Weights::default() };
        let tasks = seeds.iter().enumerate().map(|(n, seed)| -> Box<dyn FnOnce() + Send + '_> {
            let part = sim::part::Part::new(&disk, n as u64 * PAGES * P, PAGES * P);
            let events = if cfg!(asan) { 300 } else { 1000 };
            let drive = Drive { weights, may_fill_up: true, ..Drive::new(*seed, events) };
            Box::new(move || {
                drive.run(&part);
            })
        });
        suite::together(tasks.collect(), &meddle);
        let crowd = Crowd { beside: &meddle, ..Crowd::new(rng.next_u64()) };
        let disk = Plan { bytes: 16 * P, backing_pages: 6, ..plan }.build();
        let meddle = || disk.meddle(round.fetch_add(1, Ordering::Relaxed));
        suite::hot_pages(&disk, Crowd { beside: &meddle, ..crowd });
    }
}

/// After each round exactly the frames in the disk's statistics are allocated, and all others are
/// free and merged. An emptied disk leaves no trace in its zone.
#[test]
fn churn_leaves_nothing_behind_on_any_zone() {
    let mut rng = Rng::new(seed("churn_leaves_nothing_behind_on_any_zone"));
    const PAGES: u64 = 1500;
    for &zone in ALLOCATORS {
        let disk = Plan { design: of(zone), ..Plan::new(PAGES * P, zcomp::LZO) }.build();
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
