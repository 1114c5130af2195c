//! Compaction of a cache near its limit: holes are filled before pages are written back.

use std::sync::Arc;

use block::Plain;
use pagealloc::{Zone, ZoneOptions};
use sim::content::Fill;
use testkit::{Rng, seed};
use units::{Cpu, PAGE_SIZE};
use zcomp::{Chosen, Params};
use zswap::{AreaOptions, Key, Memcg, Parts, Stats, SwapType, Work, Zswap};

const CPU: Cpu = Cpu(0);
const P: u64 = PAGE_SIZE as u64;
/// The limit of the pool in frames.
const LIMIT: u64 = 1000;
/// The frames to which a full pool shrinks: 90 %.
const ACCEPTED: u64 = 900;
/// Pages of the area.
const PAGES: u64 = 1 << 14;

struct Cache {
    zswap: Zswap,
    memcg: Memcg,
    /// Pages stored so far.
    next: u64,
}

impl Cache {
    fn new() -> Cache {
        let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 12)).expect("addresses");
        let chosen = |name: &str| {
            let params = Params::default();
            let opened = zcomp::open(name, &params);
            let compressor = opened.map_err(|error| control::ControlError::invalid(error.0))?;
            Ok(Chosen { compressor, params })
        };
        let parts = Parts {
            frames: Arc::new(zone),
            kept: None,
            cpus: 1,
            counting_cpus: 1,
            codec: chosen(zcomp::LZ4).expect("it is known"),
            find_codec: Box::new(chosen),
            total_pages: 1 << 12,
            entries: PAGES as u32,
        };
        let zswap = Zswap::new(Arc::new(host::Mmap), parts).expect("there are addresses");
        zswap.set_max_pool_bytes(LIMIT * P);
        let memcg = zswap.memcg("default").expect("it is there");
        let device = Some(Arc::new(Plain::new(PAGES as usize * PAGE_SIZE)) as _);
        let options = AreaOptions { device, memcg: memcg.clone() };
        zswap.swapon(area(), PAGES, options).expect("it is off");
        Cache { zswap, memcg, next: 0 }
    }

    /// Stores another page, which shrinks to `parts` 64ths or a little more.
    fn store(&mut self, parts: u64) {
        let mut page = [0; PAGE_SIZE];
        let parts = (parts + self.next % 7) as u8;
        Fill::Partly { noise: self.next, parts }.render(&mut page);
        self.zswap.store(CPU, self.key(self.next), &self.memcg, &page).expect("it has a device");
        self.next += 1;
    }

    fn key(&self, number: u64) -> Key {
        Key { swap: area(), offset: number % PAGES }
    }

    /// Stores pages until the pool has `frames` frames.
    fn fill(&mut self, frames: u64, parts: u64) {
        while self.frames() < frames {
            self.store(parts);
        }
    }

    /// Reads pages of the last `LIMIT`, here and there. They stay longer than their neighbours.
    fn use_some(&self, rng: &mut Rng) {
        let mut page = [0; PAGE_SIZE];
        for _ in 0..16 {
            let number = self.next - 1 - rng.below(LIMIT.min(self.next));
            // It may have been written back.
            let _ = self.zswap.load_and_keep(CPU, self.key(number), &mut page);
        }
    }

    /// The owners of a third of the pages, here and there, give them up.
    fn thin_out(&self, rng: &mut Rng) {
        for number in self.next.saturating_sub(PAGES)..self.next {
            if rng.one_in(3) {
                self.zswap.invalidate_page(CPU, self.key(number));
            }
        }
    }

    /// Does what the background thread does.
    fn settle(&self) {
        while self.zswap.work(CPU) == Work::Again {}
    }

    fn stats(&self) -> Stats {
        self.zswap.stats()
    }

    fn frames(&self) -> u64 {
        self.stats().pool_bytes / P
    }

    /// Bytes of objects in a thousand bytes of frames.
    fn density(&self) -> u64 {
        self.stats().compressed_bytes * 1000 / self.stats().pool_bytes
    }
}

fn area() -> SwapType {
    SwapType::new(0).expect("there are enough")
}

#[test]
fn holes_are_filled_before_pages_are_written_back() {
    let mut rng = Rng::new(seed("holes_are_filled_before_pages_are_written_back"));
    let mut cache = Cache::new();
    cache.fill(LIMIT - 2, 18);
    let fresh = cache.density();
    cache.thin_out(&mut rng);
    let thinned = cache.density();
    assert!(thinned < fresh * 8 / 10, "{thinned} after {fresh}: frames came free at once");
    assert_eq!(cache.stats().written_back_pages, 0);
    cache.settle();
    let (stats, packed) = (cache.stats(), cache.density());
    println!("{fresh} of a thousand bytes, thinned {thinned}, settled {packed}: {stats:?}");
    assert_eq!(stats.written_back_pages, 0, "{} pages stay", stats.stored_pages);
    assert!(cache.frames() <= ACCEPTED);
    assert!(packed >= fresh * 95 / 100, "{packed} of a thousand bytes; when fresh, {fresh}");
    cache.zswap.validate();
}

/// Pages of other sizes come all the time, and the oldest are written back for them, but not those
/// that are read. As many stay as a fresh pool has space for.
#[test]
fn no_more_pages_are_written_back_than_there_must_be() {
    let mut rng = Rng::new(seed("no_more_pages_are_written_back_than_there_must_be"));
    let mut cache = Cache::new();
    let mut least = u64::MAX;
    for parts in [18, 26, 12, 22, 9] {
        let mut fresh = Cache::new();
        fresh.fill(ACCEPTED, parts);
        let (fresh, until) = (fresh.density(), cache.next + 5 * LIMIT);
        while cache.next < until {
            (0..16).for_each(|_| cache.store(parts));
            cache.use_some(&mut rng);
            cache.settle();
            let bytes = cache.stats().compressed_bytes;
            // The pool has been full since the first pages of this size came.
            if cache.next > until - LIMIT {
                least = least.min(bytes * 1000 / (ACCEPTED * P) * 100 / fresh);
            }
        }
        println!("{parts}: fresh {fresh}, {:?}", cache.stats());
    }
    assert!(cache.stats().written_back_pages > 0);
    assert!(least >= 90, "the pool once held {least} % of what a fresh one holds");
    cache.zswap.validate();
}

#[test]
fn a_thread_that_stores_moves_no_objects() {
    let mut rng = Rng::new(seed("a_thread_that_stores_moves_no_objects"));
    let mut cache = Cache::new();
    for parts in [18, 26, 12] {
        let until = cache.next + 3 * LIMIT;
        while cache.next < until {
            cache.store(parts);
            cache.use_some(&mut rng);
        }
        assert!(cache.frames() <= LIMIT);
    }
    let stats = cache.stats();
    assert!(stats.written_back_pages > 0, "the pool was never full");
    assert_eq!(stats.compacted_pages, 0);
    cache.thin_out(&mut rng);
    cache.settle();
    assert!(cache.stats().compacted_pages > 0, "there was nothing to gain");
}
