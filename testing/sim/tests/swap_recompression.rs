//! Recompression of a cache's old pages: which pages, when, and that nothing else changes.

#[path = "common/swap.rs"]
mod common;

use common::{Engine, INDEXES, swap_type};
use sim::content::Fill;
use sim::swap::{Cache, FaultyDevice, Found, PAGES, SwapPage};
use units::{Cpu, PAGE_SIZE, Page};
use zswap::Stats;

const CPU: Cpu = Cpu(0);
/// The time between two passes, in nanoseconds.
const PASS: u64 = 64_000_000_000 / 8;

struct World(Engine);

impl World {
    /// A cache whose pages are recompressed.
    fn new() -> World {
        let engine = Engine::new(INDEXES[0], 1);
        engine.zswap.set_compressor(zcomp::LZ4).expect("it is known");
        engine.zswap.set_auto(true).expect("there is memory");
        engine.swapon(0, FaultyDevice::new(PAGES, 0, 0)).expect("it is off");
        World(engine)
    }

    fn store(&self, offset: u64, fill: Fill) {
        self.0.store(CPU, at(offset), 0, &rendered(fill)).expect("there is space");
    }

    fn has(&self, offset: u64, fill: Fill) {
        let mut page = [0; PAGE_SIZE];
        assert_eq!(self.0.load(CPU, at(offset), &mut page), Found::Page);
        assert!(page == rendered(fill), "page {offset}");
    }

    /// Lets passes come by.
    fn passes(&self, count: u32) {
        for _ in 0..count {
            assert!(!self.0.zswap.recompress_old(CPU, PASS, &|| 0), "there is time");
        }
    }

    fn stats(&self) -> Stats {
        self.0.zswap.stats()
    }
}

fn at(offset: u64) -> SwapPage {
    SwapPage { area: 0, offset }
}

fn rendered(fill: Fill) -> Page {
    let mut page = [0; PAGE_SIZE];
    fill.render(&mut page);
    page
}

#[test]
fn pages_that_are_not_read_become_smaller() {
    let world = World::new();
    (0..40).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(7);
    assert_eq!(world.stats().recompressed, 0, "they are young");
    let before = world.stats();
    world.passes(2);
    let after = world.stats();
    println!("{before:?}\n{after:?}");
    assert_eq!((after.recompressed, after.warm_pages), (40, 40));
    assert!(after.compressed_bytes * 10 < before.compressed_bytes * 9);
    assert!(after.pool_bytes < before.pool_bytes);
    assert_eq!((after.stores, after.stored_pages), (before.stores, before.stored_pages));
    (0..40).for_each(|page| world.has(page, Fill::Text(page)));
    let read = world.stats();
    assert_eq!((read.warm_loads, read.warm_loads_soon), (40, 40));
    world.0.validate();
    // A page that is stored anew is compressed as any other.
    world.store(3, Fill::Text(99));
    assert_eq!(world.stats().warm_pages, 39);
    world.has(3, Fill::Text(99));
    assert_eq!(world.stats().warm_loads, 40);
}

#[test]
fn pages_that_are_read_stay_as_they_are() {
    let world = World::new();
    (0..2).for_each(|page| world.store(page, Fill::Text(page)));
    for _ in 0..10 {
        world.passes(4);
        world.has(0, Fill::Text(0));
    }
    assert_eq!(world.stats().recompressed, 1, "only the other one is old");
    world.passes(9);
    assert_eq!(world.stats().packed_pages, 2, "both rest");
}

#[test]
fn what_does_not_become_smaller_is_tried_once() {
    let world = World::new();
    (0..10).for_each(|page| world.store(page, Fill::Noise(page)));
    world.store(10, Fill::Words(7));
    world.passes(30);
    let stats = world.stats();
    assert_eq!((stats.recompressed, stats.recompress_vain), (0, 10), "{stats:?}");
    assert_eq!(stats.warm_pages, 0);
    (0..10).for_each(|page| world.has(page, Fill::Noise(page)));
    world.0.validate();
}

#[test]
fn what_was_stored_with_the_codec_stays_without_neighbours() {
    let world = World::new();
    world.0.zswap.set_compressor(zcomp::ZSTD).expect("it is known");
    (0..10).for_each(|page| world.store(4 * page, Fill::Text(page)));
    world.passes(30);
    let stats = world.stats();
    assert_eq!((stats.recompressed, stats.recompress_vain), (0, 10), "{stats:?}");
    (0..10).for_each(|page| world.has(4 * page, Fill::Text(page)));
    // So nobody waits longer for them than for others.
    assert_eq!(world.stats().warm_loads, 0);
}

#[test]
fn neighbours_that_rest_become_packs_and_take_less_than_each_alone() {
    let [together, alone] = [1, 4].map(|distance| {
        let world = World::new();
        (0..16).for_each(|page| world.store(distance * page, Fill::Text(page / 4)));
        world.passes(9);
        (0..16).for_each(|page| world.has(distance * page, Fill::Text(page / 4)));
        world.0.validate();
        world.stats()
    });
    assert_eq!((together.packed_pages, alone.packed_pages), (16, 0), "{together:?}");
    assert_eq!((together.warm_pages, alone.warm_pages), (16, 16));
    assert!(together.compressed_bytes * 2 < alone.compressed_bytes, "{together:?} {alone:?}");
}

#[test]
fn a_page_leaves_its_pack_and_the_others_stay() {
    let world = World::new();
    (0..16).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(9);
    assert_eq!(world.stats().packed_pages, 16);
    // One is stored anew, one is invalidated, one goes to the device.
    world.store(1, Fill::Text(101));
    world.0.invalidate_page(CPU, at(4));
    let written = world.0.reclaim(CPU, 1);
    assert_eq!((written.written, world.stats().packed_pages), (1, 13));
    world.0.validate();
    let left = (0..16).filter(|page| ![1, 4].contains(page));
    let has = |page: u64| {
        let mut into = [0; PAGE_SIZE];
        let found = world.0.load(CPU, at(page), &mut into);
        (found == Found::Page).then(|| assert!(into == rendered(Fill::Text(page)))).is_some()
    };
    assert_eq!(left.filter(|page| has(*page)).count(), 13);
    world.has(1, Fill::Text(101));
    world.0.zswap.invalidate_area(CPU, swap_type(0));
    world.0.validate();
    assert_eq!((world.stats().compressed_bytes, world.stats().pool_bytes), (0, 0));
}

#[test]
fn what_is_left_of_a_pack_is_packed_anew_or_taken_apart() {
    let world = World::new();
    (0..8).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(9);
    (0..2).for_each(|page| world.store(page, Fill::Text(page + 50)));
    (5..8).for_each(|page| world.0.invalidate_page(CPU, at(page)));
    let before = world.stats();
    world.passes(20);
    let after = world.stats();
    assert_eq!((before.packed_pages, after.packed_pages), (3, 4), "{after:?}");
    assert_eq!(after.warm_pages, 5);
    assert!(after.pool_bytes <= before.pool_bytes);
    (0..2).for_each(|page| world.has(page, Fill::Text(page + 50)));
    (2..5).for_each(|page| world.has(page, Fill::Text(page)));
    world.0.validate();
}

#[test]
fn pages_of_two_memcgs_are_in_no_pack() {
    let world = World::new();
    for page in 0..8 {
        let stored = world.0.store(CPU, at(page), (page % 2) as usize, &rendered(Fill::Text(1)));
        stored.expect("there is space");
    }
    world.passes(30);
    assert_eq!(world.stats().packed_pages, 8);
    let bytes = |world: &World| world.0.totals().memcg_bytes;
    let before = bytes(&world);
    (0..8).step_by(2).for_each(|page| world.0.invalidate_page(CPU, at(page)));
    assert_eq!(bytes(&world), [0, before[1], 0], "the other's packs are as they were");
    (1..8).step_by(2).for_each(|page| world.has(page, Fill::Text(1)));
    world.0.validate();
}

#[test]
fn packs_are_moved_together() {
    let world = World::new();
    (0..PAGES).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(9);
    (0..PAGES).filter(|page| page / 4 % 4 != 0).for_each(|page| {
        world.0.invalidate_page(CPU, at(page));
    });
    world.0.compact(CPU);
    (0..PAGES).filter(|page| page / 4 % 4 == 0).for_each(|page| world.has(page, Fill::Text(page)));
    world.0.validate();
}

#[test]
fn nothing_happens_without_memory_and_later_it_does() {
    let world = World::new();
    (0..40).for_each(|page| world.store(page, Fill::Text(page)));
    world.0.leave_frames(0);
    world.passes(12);
    let short = world.stats();
    assert!(short.recompress_left > 0, "{short:?}");
    (0..40).for_each(|page| world.has(page, Fill::Text(page)));
    world.0.leave_frames(u32::MAX);
    world.passes(12);
    assert_eq!(world.stats().warm_pages, 40);
    world.0.validate();
}

#[test]
fn it_takes_no_more_cpu_time_than_it_may() {
    let world = World::new();
    (0..40).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(7);
    // Each look at the CPU time finds a fortieth of a second more.
    let clock = std::cell::Cell::new(0);
    let spent = || {
        clock.set(clock.get() + 25_000_000);
        clock.get()
    };
    let mut calls = 0;
    while world.stats().recompressed < 40 {
        world.0.zswap.recompress_old(CPU, 1_000_000_000, &spent);
        calls += 1;
        assert!(calls < 1000, "it never ends: {:?}", world.stats());
    }
    let stats = world.stats();
    let percent = stats.recompress_ns / (calls * 10_000_000);
    assert!((2..=7).contains(&percent), "{percent} % of one CPU: {stats:?}");
}

#[test]
fn pages_that_come_back_at_once_are_recompressed_later() {
    let world = World::new();
    let first = world.stats().recompress_age;
    for round in 0..12 {
        (0..64).for_each(|page| world.store(page, Fill::Text(page + round)));
        world.passes(9);
        (0..64).for_each(|page| world.has(page, Fill::Text(page + round)));
        (0..64).for_each(|page| world.has(page, Fill::Text(page + round)));
        world.passes(1);
    }
    let later = world.stats().recompress_age;
    assert!(later > first, "{first} seconds, then {later}");
    world.passes(40);
    assert_eq!(world.stats().recompress_age, first, "when nothing is read any more");
}

#[test]
fn it_can_be_turned_off() {
    let world = World::new();
    (0..40).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(9);
    world.0.zswap.set_auto(false).expect("it ends");
    (40..60).for_each(|page| world.store(page, Fill::Text(page)));
    world.passes(20);
    let stats = world.stats();
    assert_eq!((stats.recompressed, stats.recompress_age), (40, 0));
    (0..60).for_each(|page| world.has(page, Fill::Text(page)));
    world.0.zswap.invalidate_area(CPU, swap_type(0));
    world.0.validate();
}
