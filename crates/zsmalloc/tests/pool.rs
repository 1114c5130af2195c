//! The pool against a model: random stores, frees and compactions from a seed, every structure
//! checked, contents compared; limits; many threads with compaction beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pagealloc::{Frames, Zone, ZoneOptions};
use sync::ReaderEpochs;
use testkit::Rng;
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Pool, PoolOptions, StoreError};

const CPU: Cpu = Cpu(0);

struct Site {
    frames: Arc<dyn Frames>,
    readers: Arc<ReaderEpochs>,
    pool: Pool,
}

fn site(max_frames: u32, limit_frames: u64) -> Site {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(2, max_frames)).unwrap();
    let (frames, readers): (Arc<dyn Frames>, _) = (Arc::new(zone), Arc::new(ReaderEpochs::new(2)));
    let options = PoolOptions { frames: frames.clone(), readers: readers.clone(), limit_frames };
    let pool = Pool::new(&host::Mmap, options).unwrap();
    Site { frames, readers, pool }
}

/// Bytes that tell their own story: a length and a stamp repeated.
fn contents(stamp: u64, length: usize) -> Vec<u8> {
    let seed = Rng::new(stamp).next_u64();
    (0..length).map(|n| (seed >> (n % 8 * 8)) as u8 ^ n as u8).collect()
}

/// Sizes as compressed pages have them: mostly middling, some tiny, some whole pages.
fn some_size(rng: &mut Rng) -> usize {
    match rng.below(10) {
        0 => 1 + rng.below(64) as usize,
        1 => PAGE_SIZE,
        2 => 1 + rng.below(PAGE_SIZE as u64) as usize,
        _ => 300 + rng.below(2000) as usize,
    }
}

impl Site {
    fn store(&self, cpu: Cpu, bytes: &[u8]) -> Result<Handle, StoreError> {
        self.replace(cpu, bytes, None)
    }

    fn replace(&self, cpu: Cpu, bytes: &[u8], old: Option<Handle>) -> Result<Handle, StoreError> {
        // SAFETY: it is a reader of the pool's.
        unsafe { self.pool.store(&self.readers.enter(cpu), cpu, bytes, old) }
    }

    fn free(&self, cpu: Cpu, handle: Handle) {
        // SAFETY: each test frees what it stored, and reads no more of it; of an object that is
        // freed twice the pool knows, as none took its place.
        unsafe { self.pool.free(cpu, handle) }
    }

    fn read(&self, cpu: Cpu, handle: Handle, length: usize) -> Vec<u8> {
        let mut copy = vec![0; length];
        let reader = self.readers.enter(cpu);
        // SAFETY: the tests read what they stored with this length and have not freed.
        unsafe {
            self.pool.read(&reader, handle, length, |object| {
                object.copy_to(&mut copy);
            });
        }
        copy
    }

    fn check(&self, live: &BTreeMap<u32, (u64, usize)>) {
        self.pool.validate();
        assert_eq!(self.pool.stats().objects, live.len() as u64);
        for (handle, (stamp, length)) in live {
            let read = self.read(CPU, Handle::from_raw(*handle), *length);
            assert!(read == contents(*stamp, *length), "object {handle:#x} changed");
        }
    }
}

#[test]
fn random_life_matches_the_model() {
    let mut rng = Rng::new(testkit::seed("random_life_matches_the_model"));
    let site = site(1 << 16, 0);
    let mut live: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for round in 0..60u64 {
        let growing = rng.below(100);
        for step in 0..400u64 {
            if rng.below(100) < growing {
                let (stamp, length) = (round << 32 | step, some_size(&mut rng));
                let handle = site.store(CPU, &contents(stamp, length)).unwrap();
                let before = live.insert(handle.get(), (stamp, length));
                assert!(before.is_none(), "a live handle was given out again");
            } else if let Some(handle) = pick(&mut rng, &live) {
                live.remove(&handle);
                site.free(CPU, Handle::from_raw(handle));
            }
        }
        if rng.below(3) == 0 {
            site.pool.compact(CPU);
        }
        site.check(&live);
    }
    for handle in live.keys() {
        site.free(CPU, Handle::from_raw(*handle));
    }
    site.check(&BTreeMap::new());
    assert_eq!(site.pool.frames(), 0, "an empty pool has no frames");
    assert_eq!(site.frames.stats().allocated, 0);
    site.frames.validate();
}

fn pick(rng: &mut Rng, live: &BTreeMap<u32, (u64, usize)>) -> Option<u32> {
    let from = rng.next_u64() as u32;
    live.range(from..).chain(live.iter()).next().map(|(handle, _)| *handle)
}

#[test]
fn compaction_gives_frames_back_and_handles_stay() {
    let site = site(1 << 16, 0);
    let mut rng = Rng::new(testkit::seed("compaction_gives_frames_back_and_handles_stay"));
    let mut live = BTreeMap::new();
    for stamp in 0..20_000 {
        let length = 200 + rng.below(1500) as usize;
        let handle = site.store(CPU, &contents(stamp, length)).unwrap();
        live.insert(handle.get(), (stamp, length));
    }
    let full = site.pool.frames();
    // Three of four go, at random: every zspage keeps some.
    live.retain(|handle, _| {
        let stays = rng.below(4) == 0;
        if !stays {
            site.free(CPU, Handle::from_raw(*handle));
        }
        stays
    });
    let thinned = site.pool.frames();
    let freed = site.pool.compact(CPU);
    let packed = site.pool.frames();
    assert!(freed > 0 && packed < thinned, "{full} frames, {thinned} thinned, {packed} packed");
    let bytes: usize = live.values().map(|(_, length)| length).sum();
    let least = (bytes / PAGE_SIZE) as u64;
    assert!(packed <= least + least / 8, "{packed} frames for {least} frames of objects");
    site.check(&live);
    // Moved objects are moved again, and freed through what the moves left behind.
    live.retain(|handle, _| {
        let stays = rng.below(3) == 0;
        if !stays {
            site.free(CPU, Handle::from_raw(*handle));
        }
        stays
    });
    site.pool.compact(CPU);
    site.check(&live);
    for handle in live.keys() {
        site.free(CPU, Handle::from_raw(*handle));
    }
    site.check(&BTreeMap::new());
    assert_eq!(site.pool.stats().overhead_bytes, 0, "nothing is left behind");
}

#[test]
fn a_limit_refuses_and_changes_nothing() {
    let site = site(1 << 12, 10);
    let mut live = BTreeMap::new();
    let mut refused = None;
    for stamp in 0..200 {
        match site.store(CPU, &contents(stamp, 1300)) {
            Ok(handle) => drop(live.insert(handle.get(), (stamp, 1300))),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert_eq!(refused, Some(StoreError::OverLimit));
    assert_eq!(site.pool.frames(), 10);
    site.check(&live);
    site.pool.set_limit(0);
    assert!(site.store(CPU, &[1; 4000]).is_ok());
}

#[test]
fn no_memory_refuses_and_changes_nothing() {
    let site = site(8, 0);
    let mut live = BTreeMap::new();
    let mut stamp = 0;
    let refused = loop {
        stamp += 1;
        match site.store(CPU, &contents(stamp, 3000)) {
            Ok(handle) => drop(live.insert(handle.get(), (stamp, 3000))),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, StoreError::NoMemory);
    assert!(!live.is_empty());
    site.check(&live);
    site.pool.compact(CPU);
    site.check(&live);
}

#[test]
fn replacing_does_not_make_the_pool_grow() {
    let site = site(1 << 14, 0);
    let mut rng = Rng::new(testkit::seed("replacing_does_not_make_the_pool_grow"));
    let mut objects: Vec<(Handle, usize)> = (0..4000)
        .map(|stamp| {
            let length = 200 + rng.below(2500) as usize;
            (site.store(CPU, &contents(stamp, length)).unwrap(), length)
        })
        .collect();
    let before = site.pool.frames();
    for n in 0..20_000 {
        let (old, length) = objects[n % 4000];
        let bytes = contents(n as u64, length);
        objects[n % 4000].0 = site.replace(CPU, &bytes, Some(old)).unwrap();
        site.free(CPU, old);
    }
    let after = site.pool.frames();
    assert!(after <= before + before / 50, "{before} frames became {after}");
    site.pool.validate();
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_double_free_is_noticed() {
    let site = site(1 << 10, 0);
    let first = site.store(CPU, &[1; 100]).unwrap();
    let _second = site.store(CPU, &[2; 100]).unwrap();
    site.free(CPU, first);
    site.free(CPU, first);
}

#[test]
fn threads_store_read_and_free_beside_compaction() {
    let seed = testkit::seed("threads_store_read_and_free_beside_compaction");
    let site = site(1 << 16, 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3u32)
            .map(|n| {
                let site = &site;
                scope.spawn(move || live_randomly(site, Cpu(n), seed.wrapping_add(u64::from(n))))
            })
            .collect();
        let (site, done) = (&site, &done);
        let compactor = scope.spawn(move || {
            while !done.load(Relaxed) {
                site.pool.compact(CPU);
                std::thread::yield_now();
            }
        });
        let kept: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        done.store(true, Relaxed);
        compactor.join().unwrap();
        let live = kept.into_iter().flatten().collect();
        site.check(&live);
    });
}

/// Stores, checks and frees objects of its own; returns those that are left.
fn live_randomly(site: &Site, cpu: Cpu, seed: u64) -> BTreeMap<u32, (u64, usize)> {
    let mut rng = Rng::new(seed);
    let mut live = BTreeMap::new();
    for step in 0..20_000 {
        let stamp = seed << 32 | step;
        // Tides: the pool fills, then thins out, so that there is something to compact.
        let filling = step / 2_500 % 2 == 0;
        if rng.below(10) < if filling { 7 } else { 3 } {
            let length = some_size(&mut rng);
            let handle = site.store(cpu, &contents(stamp, length)).unwrap();
            assert!(live.insert(handle.get(), (stamp, length)).is_none());
        } else if let Some(handle) = pick(&mut rng, &live) {
            let (stamp, length) = live[&handle];
            let read = site.read(cpu, Handle::from_raw(handle), length);
            assert!(read == contents(stamp, length), "object {handle:#x} changed");
            if rng.below(2) == 0 {
                live.remove(&handle);
                site.free(cpu, Handle::from_raw(handle));
            }
        }
    }
    live
}

/// Stores objects, frees most of them, and sets the limit to what is used. Returns how many objects
/// of `size` fit then, after so many compactions.
fn room_at_the_limit(seed: u64, size: usize, compactions: u32) -> usize {
    let site = site(4096, 0);
    let mut rng = Rng::new(seed);
    let handles: Vec<Handle> =
        (0..600).map(|n| site.store(CPU, &contents(n, size)).unwrap()).collect();
    for handle in handles {
        if rng.below(5) != 0 {
            site.free(CPU, handle);
        }
    }
    site.pool.set_limit(site.pool.stats().frames);
    for _ in 0..compactions {
        site.pool.compact(CPU);
    }
    site.pool.validate();
    let stored = (0..).take_while(|n| site.store(CPU, &contents(*n, size)).is_ok()).count();
    site.pool.validate();
    stored
}

#[test]
fn a_compaction_without_memory_loses_no_room() {
    let seed = testkit::seed("a_compaction_without_memory_loses_no_room");
    for size in [700, 1300, 1500, 2200, 2700, 3100] {
        let before = room_at_the_limit(seed, size, 0);
        let after = room_at_the_limit(seed, size, 3);
        assert!(after >= before, "{size} bytes: room for {before}, then for {after}");
    }
}
