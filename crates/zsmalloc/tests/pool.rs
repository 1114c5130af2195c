//! The pool against a model: random stores, frees and compactions from a seed, every structure
//! checked, contents compared; and limits.

mod common;

use std::collections::BTreeMap;

use common::{CPU, contents, pick, site, some_size};
use testkit::Rng;
use zsmalloc::{Handle, StoreError};

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
            site.compact(&mut live);
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
    site.compact(&mut live);
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
        objects[n % 4000].0 = site.pool.store(CPU, &bytes, Some(old)).unwrap();
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
