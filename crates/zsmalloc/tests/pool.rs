//! The pool against a model: random stores, frees and compactions from a seed, every structure
//! checked, contents compared; and limits.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{CPU, contents, pick, site, some_size};
use testkit::Rng;
use zsmalloc::{Handle, Limits, Room, StoreError};

#[test]
fn random_life_matches_the_model() {
    let mut rng = Rng::new(testkit::seed("random_life_matches_the_model"));
    let site = site(1 << 16);
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
            site.compact(&mut live);
        }
        // Names that are old by now, also of slots that no zspage has.
        let names = (0..round as u32 * 128).step_by(61).map(Handle::from_raw);
        names.for_each(|name| site.pool.prefetch_contents(name, 4096));
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

#[test]
fn a_limit_refuses_and_changes_nothing() {
    let site = site(1 << 12);
    site.pool.set_limit(10);
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
fn a_shut_pool_has_room_for_one_thread_only() {
    let site = site(1 << 12);
    site.pool.set_limits(Limits { stores: 4, all: 6 });
    let store = |room, bytes: u64| site.pool.store(CPU, room, &contents(7, bytes as usize), None);
    let mut large: Vec<_> = (0..4).map(|_| store(Room::Open, 4000).unwrap()).collect();
    assert_eq!(store(Room::Open, 4000), Err(StoreError::OverLimit));
    assert_eq!(store(Room::Made, 4000), Err(StoreError::OverLimit));
    // Two frames are for moves alone. Their holes are anybody's.
    for _ in 0..4 {
        store(Room::All, 2000).unwrap();
    }
    assert_eq!(store(Room::All, 2000), Err(StoreError::OverLimit));
    site.pool.shut(true);
    // SAFETY: the objects were stored above, and nobody uses them.
    large.drain(..3).for_each(|handle| unsafe { site.pool.free(CPU, handle) });
    assert_eq!(store(Room::Open, 2000), Err(StoreError::OverLimit), "a frame");
    store(Room::Made, 2000).unwrap();
    assert_eq!(store(Room::Open, 2000), Err(StoreError::OverLimit), "a hole");
    store(Room::Made, 2000).unwrap();
    site.pool.shut(false);
    assert_eq!(store(Room::Open, 2000), Err(StoreError::OverLimit), "the limit");
    site.pool.set_limit(0);
    store(Room::Open, 2000).unwrap();
}

#[test]
fn no_memory_refuses_and_changes_nothing() {
    let site = site(8);
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
    site.compact(&mut live);
    site.check(&live);
}

/// A new object exists before the old one is freed, so a class without a hole gets a frame. That
/// happens once to a class, however often its objects are replaced, and less often if the pool
/// knows what is replaced.
#[test]
fn replacing_does_not_make_the_pool_grow() {
    let mut rng = Rng::new(testkit::seed("replacing_does_not_make_the_pool_grow"));
    let (mut told, mut untold) = (0, 0);
    for _ in 0..10 {
        let lengths: Vec<usize> = (0..4000).map(|_| 200 + rng.below(2500) as usize).collect();
        told += growth_of_replacing(&lengths, Some);
        untold += growth_of_replacing(&lengths, |_| None);
    }
    assert!(told * 20 <= untold * 19, "told what is replaced: {told} frames more, else {untold}");
}

/// Stores objects of these lengths and replaces each twelve times. Returns the frames that the pool
/// grew by. `hint` makes the hint of a store from the old object.
fn growth_of_replacing(lengths: &[usize], hint: fn(Handle) -> Option<Handle>) -> u64 {
    let site = site(1 << 14);
    let store = |(stamp, length): (usize, &usize)| {
        site.store(CPU, &contents(stamp as u64, *length)).unwrap()
    };
    let mut objects: Vec<Handle> = lengths.iter().enumerate().map(store).collect();
    let before = site.pool.frames();
    let classes: BTreeSet<usize> = lengths.iter().map(|n| site.pool.size_class(*n)).collect();
    let most = before + classes.len() as u64;
    for stamp in 0..12 {
        for (object, length) in objects.iter_mut().zip(lengths) {
            let (old, bytes) = (*object, contents(stamp, *length));
            *object = site.pool.store(CPU, Room::Open, &bytes, hint(old)).unwrap();
            site.free(CPU, old);
        }
        let after = site.pool.frames();
        assert!(after <= most, "{before} frames became {after}, more than {most}");
    }
    site.pool.validate();
    site.pool.frames() - before
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_double_free_is_noticed() {
    let site = site(1 << 10);
    let first = site.store(CPU, &[1; 100]).unwrap();
    let _second = site.store(CPU, &[2; 100]).unwrap();
    site.free(CPU, first);
    site.free(CPU, first);
}
