//! Threads put, read and remove values while others evict, group and compact.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{at, store};
use sim::values::contents;
use testkit::{Ends, Rng};
use values::{Options, PutError, PutOptions, Recompress, Values};
use zcomp::Params;

const KEYS: u64 = 96;
const WRITERS: u64 = 2;
const STEPS: u64 = 4000;

/// The value of a version of a key. It says which it is.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mixed = (key * 31 + version * 7919) ^ version >> 3;
    let length = match mixed % 8 {
        0..5 => 16 + mixed % 900,
        5..7 => 16 + mixed % 9000,
        _ => 16 + mixed % 80_000,
    };
    let mut value = [key.to_ne_bytes(), version.to_ne_bytes()].concat();
    value.extend(contents(mixed as u8, length as usize - 16, version));
    value
}

/// Reads a key, and returns its version; `None` if it is not there.
fn read(values: &Values, cpu: u32, key: u64, into: &mut [u8]) -> Option<u64> {
    let length = values.get(at(cpu, 1), &key.to_ne_bytes(), into).expect("no damage")?;
    let version = u64::from_ne_bytes(into[8..16].try_into().expect("eight bytes"));
    assert_eq!(into[..8], key.to_ne_bytes(), "the value of another key");
    assert!(into[..length] == value(key, version), "key {key}, version {version} is not whole");
    Some(version)
}

/// Each key has one thread that puts it. All threads read all keys: no version is older than one
/// that was stored before the read began.
fn run(test: &str, codec: &str, options: Options) {
    let (forgets, recompresses) = (options.limit.is_some(), options.recompress.is_some());
    let values = store(codec, options);
    let mut rng = Rng::new(testkit::seed(test));
    let stored: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let (mut rng, values, stored) = (rng.fork(), &values, &stored);
            writers.push(scope.spawn(move || {
                let mut into = vec![0; 100_000];
                // The versions that its keys have. Only the limit takes one away.
                let mut kept = [None; KEYS as usize];
                for step in 1..=STEPS {
                    let key = rng.below(KEYS / WRITERS) * WRITERS + writer;
                    let name = key.to_ne_bytes();
                    if rng.one_in(8) {
                        values.remove(at(writer as u32, 1), &name);
                        kept[key as usize] = None;
                        assert_eq!(read(values, writer as u32, key, &mut into), None);
                        continue;
                    }
                    let value = value(key, step);
                    match values.put(at(writer as u32, 1), &name, &value, PutOptions::default()) {
                        Ok(()) => {
                            stored[key as usize].store(step, Ordering::SeqCst);
                            kept[key as usize] = Some(step);
                        }
                        // The key has what it had.
                        Err(error) => assert_eq!(error, PutError::Full),
                    }
                    let there = read(values, writer as u32, key, &mut into);
                    let is_gone = forgets && there.is_none();
                    assert!(there == kept[key as usize] || is_gone, "{there:?}, {step}");
                    kept[key as usize] = there;
                }
            }));
        }
        for cpu in 0..2 {
            let (mut rng, values, stored, done) = (rng.fork(), &values, &stored, &done);
            scope.spawn(move || {
                let mut into = vec![0; 100_000];
                while !done.load(Ordering::SeqCst) {
                    let key = rng.below(KEYS);
                    let least = stored[key as usize].load(Ordering::SeqCst);
                    if let Some(version) = read(values, cpu, key, &mut into) {
                        assert!(version >= least, "key {key}: {version} after {least}");
                    }
                }
            });
        }
        let (values, done) = (&values, &done);
        scope.spawn(move || {
            let mut round = 0;
            while !done.load(Ordering::SeqCst) {
                values.upkeep(at(2, 1), 64);
                round += 1;
                if round % 8 == 0 {
                    values.compact(units::Cpu(2));
                }
            }
        });
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::SeqCst);
        ends.into_iter().for_each(|end| end.expect("a writer that met no fault"));
    });
    let recompressed = values.stats().recompressed;
    assert_eq!(recompressed > 0, recompresses, "{recompressed} were recompressed");
    values.clear(at(0, 1));
    let stats = values.stats();
    assert_eq!((stats.values, stats.data_bytes, stats.pool_bytes), (0, 0, 0), "{stats:?}");
}

#[test]
fn readers_find_whole_values_that_are_not_too_old() {
    run("readers_find_whole_values_that_are_not_too_old", "lz4", Options::default());
}

#[test]
fn readers_find_whole_values_while_they_are_recompressed() {
    let codec = zcomp::open("zstd", &Params::at_level(Some(1))).expect("a codec");
    let recompress = Some(Recompress { codec, after: 0 });
    let options = Options { recompress, ..Options::default() };
    run("readers_find_whole_values_while_they_are_recompressed", "lz4", options);
}

#[test]
fn readers_find_whole_values_at_the_limit() {
    let options = Options { limit: Some(1 << 20), ..Options::default() };
    run("readers_find_whole_values_at_the_limit", "zstd", options);
}

#[test]
fn keys_are_found_while_the_index_shrinks() {
    const ALL: u64 = 30_000;
    let values = store("lz4", Options::default());
    let name = |key: u64| key.to_ne_bytes();
    let put = |key| values.put(at(0, 1), &name(key), b"it is there", PutOptions::default());
    (0..ALL).for_each(|key| assert_eq!(put(key), Ok(())));
    let before = values.stats();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 1..3 {
            let (values, done) = (&values, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(testkit::seed("keys_are_found_while_the_index_shrinks"));
                while !done.load(Ordering::SeqCst) {
                    let key = rng.below(ALL / 64) * 64;
                    assert!(values.contains(at(reader, 1), &name(key)), "key {key} is not found");
                }
            });
        }
        let ending = Ends(&done);
        // The index grows and shrinks over the same pages.
        for _ in 0..3 {
            let others = || (0..ALL).filter(|key| key % 64 != 0);
            others().for_each(|key| assert!(values.remove(at(0, 1), &name(key))));
            others().take(ALL as usize / 2).for_each(|key| assert_eq!(put(key), Ok(())));
            others().skip(ALL as usize / 2).for_each(|key| assert_eq!(put(key), Ok(())));
        }
        (0..ALL).filter(|key| key % 64 != 0).for_each(|key| {
            assert!(values.remove(at(0, 1), &name(key)));
        });
        drop(ending);
    });
    while values.upkeep(at(0, 1), 1000) {}
    let after = values.stats();
    assert!(after.index_bytes * 8 < before.index_bytes, "{before:?} {after:?}");
}

#[test]
fn keys_are_found_while_the_index_grows() {
    let values = store("lz4", Options::default());
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 1..3 {
            let (values, count) = (&values, &count);
            scope.spawn(move || {
                let mut rng = Rng::new(testkit::seed("keys_are_found_while_the_index_grows"));
                loop {
                    let there = count.load(Ordering::SeqCst);
                    if there == 30_000 {
                        break;
                    }
                    let key = rng.below(there);
                    assert!(
                        there == 0 || values.contains(at(reader, 1), &key.to_ne_bytes()),
                        "key {key} of {there} is not found"
                    );
                }
            });
        }
        for key in 0..30_000u64 {
            let put =
                values.put(at(0, 1), &key.to_ne_bytes(), b"it is there", PutOptions::default());
            assert_eq!(put, Ok(()));
            count.store(key + 1, Ordering::SeqCst);
        }
    });
}
