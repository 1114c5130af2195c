//! A store of values under shuttle: reads, snapshots and clones while values are replaced, removed,
//! are recompressed, become members of groups and leave them, while the index grows and objects
//! move.
//! `shuttle.rs` and docs/internals/testing.md say how to run it.
#![cfg(shuttle)]

#[path = "shuttle/explore.rs"]
mod explore;

use std::sync::Arc;

use explore::{Play, holds};
use pagealloc::{Zone, ZoneOptions};
use shuttle::thread;
use sim::values::contents;
use units::Cpu;
use values::{At, Options, Parts, PutOptions, Recompress, Values};
use zcomp::Params;

const CPUS: usize = 2;
/// The most bytes of a value here.
const MOST: usize = 24 << 10;

/// What explore tells of a run beside its schedules: nothing.
mod scenario {
    pub fn tally() {}
}

fn store() -> Arc<Values> {
    store_of(Options::default())
}

fn store_of(options: Options) -> Arc<Values> {
    // Frames that are freed are zeroed.
    let frames = ZoneOptions { init_on_free: true, ..ZoneOptions::new(CPUS, 1 << 12) };
    let frames = Arc::new(Zone::new(&host::Mmap, frames).expect("address space"));
    let codec = zcomp::open(zcomp::LZ4, &Params::default()).expect("a codec");
    let parts = Parts { frames, cpus: CPUS, codec, seed: 3, options };
    Arc::new(Values::new(&host::Mmap, parts).expect("a store"))
}

const fn at(cpu: u32) -> At {
    At { cpu: Cpu(cpu), now: 1 }
}

/// The value of a version of a key, which says which it is.
fn value(key: u64, version: u64, length: usize) -> Vec<u8> {
    let mut value = [key.to_ne_bytes(), version.to_ne_bytes()].concat();
    value.extend(contents(4, length - 16, version));
    value
}

fn put(values: &Values, cpu: u32, key: u64, version: u64, length: usize) {
    let value = value(key, version, length);
    let put = values.put(at(cpu), &key.to_ne_bytes(), &value, PutOptions::default());
    assert_eq!(put, Ok(()));
}

/// The version of a key.
fn read(values: &Values, cpu: u32, key: u64) -> Option<u64> {
    let mut into = vec![0; MOST];
    let length = values.get(at(cpu), &key.to_ne_bytes(), &mut into).expect("no damage")?;
    let version = u64::from_ne_bytes(into[8..16].try_into().expect("eight bytes"));
    assert!(into[..length] == value(key, version, length), "key {key}, version {version}");
    Some(version)
}

/// Nothing is left when all is cleared.
fn end(values: &Values) {
    values.clear(at(0));
    let stats = values.stats();
    assert_eq!((stats.values, stats.data_bytes, stats.pool_bytes), (0, 0, 0));
}

/// A value of some length is replaced and read while objects move.
fn replaced(length: usize) -> Play {
    Arc::new(move || {
        let values = store();
        // The holes of others make objects move.
        (10..30).for_each(|key| put(&values, 0, key, 1, length / 2 + 16));
        put(&values, 0, 1, 1, length);
        (10..30).filter(|key| key % 4 != 0).for_each(|key| {
            assert!(values.remove(at(0), &u64::to_ne_bytes(key)));
        });
        let reader = {
            let values = values.clone();
            thread::spawn(move || {
                let mut last = 1;
                for _ in 0..3 {
                    let version = read(&values, 1, 1).expect("it is always there");
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
                assert_eq!(read(&values, 1, 12), Some(1));
            })
        };
        let mover = {
            let values = values.clone();
            thread::spawn(move || values.compact(Cpu(1)))
        };
        (2..5).for_each(|version| put(&values, 0, 1, version, length));
        reader.join().expect("the reader ends");
        mover.join().expect("the mover ends");
        assert_eq!(read(&values, 0, 1), Some(4));
        end(&values);
    })
}

/// A value of some length is replaced and read while it is recompressed.
fn recompressed(length: usize) -> Play {
    Arc::new(move || {
        let codec = zcomp::open(zcomp::ZSTD, &Params::default()).expect("a codec");
        let recompress = Some(Recompress { codec, after: 0 });
        let values = store_of(Options { recompress, ..Options::default() });
        (1..4).for_each(|key| put(&values, 0, key, 1, length));
        // All are idle from then on.
        values.upkeep(at(0), 1000);
        let reader = {
            let values = values.clone();
            thread::spawn(move || {
                let mut last = 1;
                for _ in 0..3 {
                    let version = read(&values, 1, 1).expect("it is always there");
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                    assert_eq!(read(&values, 1, 2), Some(1));
                }
            })
        };
        let keeper = {
            let values = values.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    values.upkeep(at(1), 1000);
                }
            })
        };
        (2..5).for_each(|version| put(&values, 0, 1, version, length));
        reader.join().expect("the reader ends");
        keeper.join().expect("the keeper ends");
        assert_eq!((read(&values, 0, 1), read(&values, 0, 3)), (Some(4), Some(1)));
        end(&values);
    })
}

/// A snapshot is taken while small values become members of groups and leave them, and while one is
/// replaced.
fn saved() -> Play {
    const KEYS: u64 = 17;
    Arc::new(|| {
        let values = store();
        (0..KEYS - 3).for_each(|key| put(&values, 0, key, 1, 960));
        let saver = {
            let values = values.clone();
            thread::spawn(move || sim::values::saved(&values, at(1)))
        };
        (KEYS - 3..KEYS).for_each(|key| put(&values, 0, key, 1, 960));
        put(&values, 0, 2, 2, 900);
        (5..KEYS).for_each(|key| assert!(values.remove(at(0), &key.to_ne_bytes())));
        while values.upkeep(at(0), 200) {}
        let records = saver.join().expect("the saver ends");
        let other = store();
        sim::values::load(&other, at(0), &records).expect("it is whole");
        for key in (0..5).filter(|key| *key != 2) {
            assert_eq!(read(&other, 0, key), Some(1), "key {key} was there all the time");
        }
        assert!(read(&other, 0, 2).is_some());
        end(&other);
        end(&values);
    })
}

/// Small values become members of groups while some are replaced and removed; then most go, and
/// the rest leaves the group.
fn grouped() -> Play {
    const KEYS: u64 = 17;
    Arc::new(|| {
        let values = store();
        (0..KEYS - 3).for_each(|key| put(&values, 0, key, 1, 960));
        let changer = {
            let values = values.clone();
            thread::spawn(move || {
                put(&values, 1, 2, 2, 900);
                assert!(values.remove(at(1), &3u64.to_ne_bytes()));
                put(&values, 1, 4, 2, 9000);
                put(&values, 1, 4, 3, 700);
            })
        };
        let reader = {
            let values = values.clone();
            thread::spawn(move || {
                let mut last = 1;
                for _ in 0..3 {
                    assert_eq!(read(&values, 1, 1), Some(1));
                    let version = read(&values, 1, 2).expect("it is always there");
                    assert!(version >= last, "{version} after {last}");
                    last = version;
                }
            })
        };
        (KEYS - 3..KEYS).for_each(|key| put(&values, 0, key, 1, 960));
        changer.join().expect("the changer ends");
        assert!(values.stats().groups > 0, "a group was made");
        assert_eq!(
            (read(&values, 0, 2), read(&values, 0, 3), read(&values, 0, 4)),
            (Some(2), None, Some(3))
        );
        (5..KEYS).for_each(|key| assert!(values.remove(at(0), &key.to_ne_bytes())));
        let changer = {
            let values = values.clone();
            thread::spawn(move || put(&values, 1, 0, 2, 600))
        };
        while values.upkeep(at(0), 200) {}
        changer.join().expect("the changer ends");
        reader.join().expect("the reader ends");
        assert_eq!((read(&values, 0, 0), read(&values, 0, 1)), (Some(2), Some(1)));
        end(&values);
    })
}

fn clone(values: &Values) -> Values {
    values.clone_contents(&host::Mmap).expect("addresses")
}

/// A store is cloned while two values are replaced, one after the other, and objects move. Then
/// both stores replace and remove what they share, and a third one ends.
fn cloned(length: usize) -> Play {
    Arc::new(move || {
        let values = store();
        // The holes of others make objects move.
        (10..26).for_each(|key| put(&values, 0, key, 1, length / 2 + 16));
        (1..4).for_each(|key| put(&values, 0, key, 1, length));
        (10..26).filter(|key| key % 4 != 0).for_each(|key| {
            assert!(values.remove(at(0), &u64::to_ne_bytes(key)));
        });
        let third = clone(&values);
        let mover = {
            let values = values.clone();
            thread::spawn(move || values.compact(Cpu(1)))
        };
        let writer = {
            let values = values.clone();
            thread::spawn(move || {
                for version in 2..4 {
                    put(&values, 1, 1, version, length);
                    put(&values, 1, 2, version, length);
                }
                assert!(values.remove(at(1), &3u64.to_ne_bytes()));
            })
        };
        let other = clone(&values);
        let [first, second] = [1, 2].map(|key| read(&other, 0, key).expect("it is always there"));
        assert!(second == first || second + 1 == first, "{first} and {second}");
        let ends = thread::spawn(move || drop(third));
        put(&other, 0, 1, 9, length);
        let has_third = other.remove(at(0), &3u64.to_ne_bytes());
        assert!(has_third || second == 3, "it is removed last");
        for handle in [writer, ends] {
            handle.join().expect("it ends");
        }
        mover.join().expect("the mover ends");
        assert_eq!((read(&values, 0, 1), read(&values, 0, 2)), (Some(3), Some(3)));
        assert_eq!((read(&other, 0, 1), read(&other, 0, 2)), (Some(9), Some(second)));
        for key in (12..26).step_by(4) {
            assert_eq!((read(&values, 0, key), read(&other, 0, key)), (Some(1), Some(1)));
        }
        values.clear(at(0));
        assert_eq!((read(&other, 0, 12), other.stats().values), (Some(1), 6));
        end(&other);
    })
}

/// Keys are read and replaced while the index grows.
fn grows() -> Play {
    Arc::new(|| {
        let values = store();
        (0..321).for_each(|key| put(&values, 0, key, 1, 20));
        let reader = {
            let values = values.clone();
            thread::spawn(move || {
                for key in (0..320).step_by(11) {
                    assert!(read(&values, 1, key).is_some(), "key {key} is not found");
                }
            })
        };
        let writer = {
            let values = values.clone();
            thread::spawn(move || (100..110).for_each(|key| put(&values, 1, key, 2, 20)))
        };
        (321..330).for_each(|key| put(&values, 0, key, 1, 20));
        reader.join().expect("the reader ends");
        writer.join().expect("the writer ends");
        for key in 0..330 {
            let version = if (100..110).contains(&key) { 2 } else { 1 };
            assert_eq!(read(&values, 0, key), Some(version), "key {key}");
        }
        end(&values);
    })
}

/// Keys are read and replaced while the index shrinks.
fn shrinks() -> Play {
    Arc::new(|| {
        let values = store();
        (0..330).for_each(|key| put(&values, 0, key, 1, 20));
        (0..83u64).for_each(|key| assert!(values.remove(at(0), &key.to_ne_bytes())));
        let reader = {
            let values = values.clone();
            thread::spawn(move || {
                for key in (100..330).step_by(11) {
                    assert!(read(&values, 1, key).is_some(), "key {key} is not found");
                }
            })
        };
        let writer = {
            let values = values.clone();
            thread::spawn(move || (200..210).for_each(|key| put(&values, 1, key, 2, 20)))
        };
        (83..93u64).for_each(|key| assert!(values.remove(at(0), &key.to_ne_bytes())));
        reader.join().expect("the reader ends");
        writer.join().expect("the writer ends");
        for key in 93..330 {
            let version = if (200..210).contains(&key) { 2 } else { 1 };
            assert_eq!(read(&values, 0, key), Some(version), "key {key}");
        }
        end(&values);
    })
}

#[test]
fn a_value_in_chunks_is_read_while_it_is_replaced() {
    holds("a_value_in_chunks_is_read_while_it_is_replaced", "store", &replaced(20_000));
}

#[test]
fn a_value_in_its_head_is_read_while_it_is_replaced() {
    holds("a_value_in_its_head_is_read_while_it_is_replaced", "store", &replaced(2000));
}

#[test]
fn values_are_read_while_they_are_recompressed() {
    for length in [2000, 20_000] {
        holds("values_are_read_while_they_are_recompressed", "store", &recompressed(length));
    }
}

#[test]
fn a_snapshot_has_what_is_there_all_the_time() {
    holds("a_snapshot_has_what_is_there_all_the_time", "store", &saved());
}

#[test]
fn small_values_are_read_while_they_are_grouped() {
    holds("small_values_are_read_while_they_are_grouped", "store", &grouped());
}

#[test]
fn a_clone_is_of_one_instant_and_keeps_what_it_shares() {
    for length in [2000, 20_000] {
        holds("a_clone_is_of_one_instant_and_keeps_what_it_shares", "store", &cloned(length));
    }
}

#[test]
fn keys_are_read_while_the_index_grows() {
    holds("keys_are_read_while_the_index_grows", "store", &grows());
}

#[test]
fn keys_are_read_while_the_index_shrinks() {
    holds("keys_are_read_while_the_index_shrinks", "store", &shrinks());
}
