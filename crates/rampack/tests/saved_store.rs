//! Snapshots of stores, as files: whole, of a store that is used, and damaged anywhere.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pagealloc::{Zone, ZoneOptions};
use rampack::{Algorithm, Error, Rampack, Store, StoreOptions, Upkeep};
use testkit::{Ends, Rng, TempDir};
use zram::{Disk, NoHostFiles, Resources, Restoring};

fn rampack() -> Rampack {
    Rampack::builder().memory(256 << 20).upkeep(Upkeep::Manual).build().unwrap()
}

fn store() -> Store {
    rampack().store(StoreOptions::new()).unwrap()
}

/// The value of a version of a key, which says which it is.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mut value = [key.to_ne_bytes(), version.to_ne_bytes()].concat();
    let length = [200, 700, 3000, 20_000, 90_000][((key * 31 + version * 7) % 5) as usize];
    while value.len() < length {
        value.extend(format!("{key} is at {version}, ").bytes());
    }
    value
}

fn file(store: &Store) -> Vec<u8> {
    let mut file = Vec::new();
    assert_eq!(store.save(&mut file).unwrap(), store.stats().values);
    file
}

fn invalid(loaded: Result<u64, Error>) -> String {
    match loaded {
        Err(Error::Invalid(message)) => message.into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_comes_back_from_a_file() {
    let directory = TempDir::new();
    let path = directory.path().join("values");
    let saved = store();
    (0..500).for_each(|key| saved.put(key.to_string(), value(key, 1)).unwrap());
    saved.put_for("short", "life", Duration::from_secs(1000)).unwrap();
    assert_eq!(saved.save(std::fs::File::create(&path).unwrap()).unwrap(), 501);
    let rampack = rampack();
    let kept = StoreOptions::new().limit(32 << 20).keep(directory.path().join("kept"));
    for options in [
        StoreOptions::new(),
        StoreOptions::new().algorithm(Algorithm::ZSTD).unit(4096),
        StoreOptions::new().recompress(Algorithm::ZSTD, Duration::from_secs(1)),
        kept,
    ] {
        let other = rampack.store(options).unwrap();
        other.put("more", "it stays").unwrap();
        other.put("7", "it goes").unwrap();
        assert_eq!(other.load(std::fs::File::open(&path).unwrap()).unwrap(), 501);
        assert_eq!(other.stats().values, 502);
        (0..500).for_each(|key| {
            assert!(other.get(key.to_string()).unwrap() == Some(value(key, 1)), "{key}");
        });
        assert_eq!(other.get("short").unwrap().as_deref(), Some(&b"life"[..]));
        assert_eq!(other.get("more").unwrap().as_deref(), Some(&b"it stays"[..]));
    }
    // Through a pipe.
    let (from, to) = io::pipe().unwrap();
    let other = store();
    thread::scope(|scope| {
        let saving = scope.spawn(|| saved.save(to).unwrap());
        assert_eq!((other.load(from).unwrap(), saving.join().unwrap()), (501, 501));
    });
}

#[test]
fn each_key_is_as_at_some_instant_while_writers_go_on() {
    const KEYS: u64 = 120;
    let store = store();
    let none = || (0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (begun, stored) = (none(), none());
    let put = |key: u64, version: u64| {
        begun[key as usize].store(version, Ordering::SeqCst);
        store.put(key.to_ne_bytes(), value(key, version)).unwrap();
        stored[key as usize].store(version, Ordering::SeqCst);
    };
    (0..KEYS).for_each(|key| put(key, 1));
    let done = AtomicBool::new(false);
    let mut rng = Rng::new(testkit::seed("each_key_is_as_at_some_instant_while_writers_go_on"));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (mut rng, put, done) = (rng.fork(), &put, &done);
            scope.spawn(move || {
                let mut version = 1;
                while !done.load(Ordering::SeqCst) {
                    version += 1;
                    put(rng.below(KEYS / 2) * 2 + writer, version);
                }
            });
        }
        let (store, stopped) = (&store, &done);
        scope.spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                store.compact();
            }
        });
        let ending = Ends(&done);
        for _ in 0..25 {
            let versions = |of: &[AtomicU64]| {
                of.iter().map(|version| version.load(Ordering::SeqCst)).collect::<Vec<_>>()
            };
            let least = versions(&stored);
            let mut file = Vec::new();
            store.save(&mut file).unwrap();
            let most = versions(&begun);
            let other = self::store();
            other.load(&file[..]).unwrap();
            assert_eq!(other.stats().values, KEYS, "a key that was there all the time");
            for key in 0..KEYS {
                let got = other.get(key.to_ne_bytes()).unwrap().unwrap();
                let version = u64::from_ne_bytes(got[8..16].try_into().unwrap());
                assert!(got == value(key, version), "key {key} is not whole");
                let range = least[key as usize]..=most[key as usize];
                assert!(range.contains(&version), "key {key}: {version} is not in {range:?}");
            }
        }
        drop(ending);
    });
}

#[test]
fn damage_anywhere_is_refused_and_changes_nothing() {
    let saved = store();
    // Some are in a group.
    for key in 0..150 {
        let value = format!("{{\"id\":{key},\"name\":\"a user of the number {key}\"}}");
        saved.put(format!("small {key}"), value).unwrap();
    }
    saved.put("text", "some words ".repeat(300)).unwrap();
    saved.put("zeroes", vec![0; 100_000]).unwrap();
    let mut rng = Rng::new(testkit::seed("damage_anywhere_is_refused_and_changes_nothing"));
    saved.put("noise", (0..600).map(|_| rng.next_u64() as u8).collect::<Vec<_>>()).unwrap();
    let mut units = vec![0; 16_384];
    units.extend("more words ".repeat(2000).bytes());
    saved.put("units", &units).unwrap();
    let file = file(&saved);

    let other = store();
    other.put("text", "as it was").unwrap();
    other.put("other", "another".repeat(1000)).unwrap();
    let before = other.stats();
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(!invalid(other.load(&bad[..])).is_empty(), "byte {at} was flipped");
        assert!(!invalid(other.load(&file[..at])).is_empty(), "cut at {at}");
    }
    let more = [&file[..], &[0]].concat();
    assert!(invalid(other.load(&more[..])).contains(&format!("byte {}", file.len())));
    let after = other.stats();
    assert_eq!((after.values, after.data_bytes), (before.values, before.data_bytes));
    assert_eq!(after.memory_bytes, before.memory_bytes, "memory of what was refused");
    assert_eq!(other.get("text").unwrap().as_deref(), Some(&b"as it was"[..]));
    assert_eq!(other.load(&file[..]).unwrap(), 154);
    assert_eq!(other.get("units").unwrap(), Some(units));
}

#[test]
fn what_it_is_not_is_refused_by_name() {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 4096)).unwrap();
    let resources = Resources::new(Arc::new(host::Mmap), Arc::new(zone), 1, Arc::new(NoHostFiles));
    let disk = Disk::new(0, Arc::new(resources));
    disk.set_disksize(1 << 20).unwrap();
    let (mut of_disk, mut snapshot) = (Vec::new(), disk.snapshot(1).unwrap());
    while let Some(bytes) = snapshot.next_bytes().unwrap() {
        of_disk.extend(bytes);
    }
    drop(snapshot);
    let store = store();
    let said = invalid(store.load(&of_disk[..]));
    assert_eq!(said, "this is a snapshot of a disk, not of a store of values");
    disk.reset().unwrap();
    let file = file(&store);
    let mut left = &file[..];
    let mut source = |into: &mut [u8]| Ok(left.read(into).unwrap());
    let said = disk.restore(&mut source, Restoring::default()).unwrap_err();
    assert_eq!(said.message, "this is a snapshot of a store of values, not of a disk");
    assert!(invalid(store.load(io::empty())).contains("empty"));
    assert!(invalid(store.load(&b"something else, and long"[..])).contains("rampack-vals"));
    let mut newer = file;
    newer[12] = 2;
    assert!(invalid(store.load(&newer[..])).contains("version 2"));
}

/// Fails after so many bytes.
struct Short(usize);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.min(bytes.len()) {
            0 => Err(io::Error::from_raw_os_error(28)),
            some => {
                self.0 -= some;
                Ok(some)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Short {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let some = self.write(into)?;
        into[..some].fill(0);
        Ok(some)
    }
}

#[test]
fn errors_of_files_and_limits_are_passed_on() {
    let saved = store();
    (0..100).for_each(|key| saved.put(key.to_string(), value(key, 1)).unwrap());
    let error = saved.save(Short(1000)).unwrap_err();
    assert_eq!(error.errno(), 28, "{error}");
    assert_eq!(saved.load(Short(10)).unwrap_err().errno(), 28);
    let small = rampack().store(StoreOptions::new().limit(1 << 20)).unwrap();
    let mut rng = Rng::new(testkit::seed("errors_of_files_and_limits_are_passed_on"));
    let noise: Vec<u8> = (0..2 << 20).map(|_| rng.next_u64() as u8).collect();
    saved.put("noise", noise).unwrap();
    small.put("key", "value").unwrap();
    assert_eq!(small.load(&file(&saved)[..]), Err(Error::Full));
    assert_eq!((small.stats().values, small.stats().evicted), (1, 0));
}
