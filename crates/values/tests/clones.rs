//! Stores that share what they have in common.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{at, clone, open, store};
use sim::values::contents;
use testkit::{Ends, Rng};
use units::Cpu;
use values::{At, Options, PutOptions, Recompress, Values};
use zcomp::Params;

/// The most stores of a family here.
const MOST: u64 = 5;
const KEYS: u64 = 300;

/// The contents of a value, and the second at which its life ends.
type Model = BTreeMap<u64, (Vec<u8>, u32)>;

/// A store and its clones, each beside a map.
struct Stores {
    stores: Vec<(Values, Model)>,
    /// Values may leave by themselves.
    evicts: bool,
    now: u32,
}

fn put(values: &Values, at: At, number: u64, value: &[u8]) {
    let put = values.put(at, &number.to_ne_bytes(), value, PutOptions::default());
    assert_eq!(put, Ok(()));
}

fn got(values: &Values, at: At, number: u64) -> Option<Vec<u8>> {
    values.get_vec(at, &number.to_ne_bytes()).expect("no damage")
}

fn lives(expires: u32, now: u32) -> bool {
    expires == 0 || expires > now
}

fn empty(values: &Values) {
    values.clear(at(0, 1));
    let stats = values.stats();
    assert_eq!((stats.values, stats.data_bytes, stats.groups), (0, 0, 0));
    assert_eq!(stats.pool_bytes, 0, "objects that nothing names");
}

impl Stores {
    fn step(&mut self, rng: &mut Rng) {
        let chosen = rng.below(self.stores.len() as u64) as usize;
        let at = at(rng.below(3) as u32, self.now);
        let number = rng.below(KEYS);
        let count = self.stores.len() as u64;
        let (values, model) = &mut self.stores[chosen];
        match rng.below(100) {
            0..45 => {
                let length = match rng.below(8) {
                    0..5 => rng.below(900),
                    5..7 => rng.below(30_000),
                    _ => rng.below(200_000),
                };
                let value = contents(rng.below(5) as u8, length as usize, rng.next_u64());
                let ttl = (rng.below(6) == 0).then(|| 1 + rng.below(8) as u32);
                let put = values.put(at, &number.to_ne_bytes(), &value, PutOptions { ttl });
                assert_eq!(put, Ok(()));
                model.insert(number, (value, ttl.map_or(0, |ttl| self.now + ttl)));
            }
            45..65 => self.compare(chosen, number),
            65..80 => {
                let removed = values.remove(at, &number.to_ne_bytes());
                let was = model.remove(&number);
                let was = was.is_some_and(|(_, expires)| lives(expires, self.now));
                assert!(removed == was || self.evicts && !removed, "{number}");
            }
            80..86 => drop(values.upkeep(at, 200)),
            86..89 => self.now += 1,
            89..91 => drop(values.compact(at.cpu)),
            91..95 if count < MOST => {
                let other = (clone(values), model.clone());
                self.stores.push(other);
            }
            95..98 if count > 1 => drop(self.stores.swap_remove(chosen)),
            98 if rng.below(4) == 0 => {
                values.clear(at);
                model.clear();
            }
            _ => {}
        }
    }

    fn compare(&mut self, store: usize, number: u64) {
        let (values, model) = &mut self.stores[store];
        let value = got(values, at(1, self.now), number);
        let expected = model.get(&number).filter(|(_, expires)| lives(*expires, self.now));
        if value.is_none() && self.evicts {
            model.remove(&number);
        } else {
            assert!(value.as_ref() == expected.map(|(value, _)| value), "{number} of {store}");
        }
    }

    /// All values, and what the stores say of them.
    fn compare_all(&mut self) {
        for store in 0..self.stores.len() {
            (0..KEYS).for_each(|number| self.compare(store, number));
            let (values, model) = &mut self.stores[store];
            while values.upkeep(at(0, self.now), 1000) {}
            model.retain(|_, (_, expires)| lives(*expires, self.now));
            let data = model.values().map(|(value, _)| 8 + value.len() as u64).sum::<u64>();
            let stats = values.stats();
            // Upkeep puts members into new groups, and that may have evicted some.
            if !self.evicts || stats.values == model.len() as u64 {
                assert_eq!((stats.values, stats.data_bytes), (model.len() as u64, data));
            }
        }
    }
}

fn run(test: &str, options: Options) {
    let mut rng = Rng::new(testkit::seed(test));
    let evicts = options.limit.is_some();
    let first = (store("lz4", options), Model::new());
    let mut stores = Stores { stores: vec![first], evicts, now: 1 };
    for step in 0..6000 {
        stores.step(&mut rng);
        if step % 1500 == 0 {
            stores.compare_all();
        }
    }
    stores.compare_all();
    // In any order, the last one has what it had.
    while stores.stores.len() > 1 {
        let gone = rng.below(stores.stores.len() as u64) as usize;
        drop(stores.stores.swap_remove(gone));
        stores.compare_all();
    }
    empty(&stores.stores[0].0);
}

fn recompress(after: u32) -> Option<Recompress> {
    let codec = zcomp::open("zstd", &Params::default()).expect("a codec");
    Some(Recompress { codec, after })
}

#[test]
fn clones_are_as_their_models() {
    run("clones_are_as_their_models", Options::default());
}

#[test]
fn clones_that_recompress_are_as_their_models() {
    let options = Options { recompress: recompress(1), unit: 4096, ..Options::default() };
    run("clones_that_recompress_are_as_their_models", options);
}

#[test]
fn clones_that_evict_are_as_their_models() {
    let options = Options { recompress: recompress(2), limit: Some(3 << 20), ..Options::default() };
    run("clones_that_evict_are_as_their_models", options);
}

/// Ten clones, in each of which a twentieth is written, take little more than what was written.
#[test]
fn ten_clones_take_the_memory_of_what_is_written() {
    const VALUES: u64 = 2000;
    let values = store("lz4", Options::default());
    let value = |number, version| contents(2, 12_000, number * 100 + version);
    (0..VALUES).for_each(|number| put(&values, at(0, 1), number, &value(number, 0)));
    let one = values.stats();
    let clones: Vec<Values> = (0..10).map(|_| clone(&values)).collect();
    let words = clones[0].stats();
    assert_eq!(words.pool_bytes, one.pool_bytes, "a clone takes words only");
    assert!(words.memory_bytes <= one.memory_bytes + 10 * one.index_bytes, "{one:?} {words:?}");
    let is_written = |number: u64, version: u64| number % 20 == version;
    for (clone, version) in clones.iter().zip(1..) {
        (0..VALUES).filter(|number| is_written(*number, version)).for_each(|number| {
            put(clone, at(0, 1), number, &value(number, version));
        });
    }
    values.compact(Cpu(0));
    let all = values.stats();
    let most = |one: u64| one + one / 10 * 6;
    assert!(all.pool_bytes <= most(one.pool_bytes), "{one:?} {all:?}");
    assert!(all.memory_bytes <= most(one.memory_bytes), "{one:?} {all:?}");
    for (clone, version) in clones.iter().zip(1..) {
        for number in 0..VALUES {
            let version = if is_written(number, version) { version } else { 0 };
            assert!(got(clone, at(0, 1), number) == Some(value(number, version)), "{number}");
        }
    }
    // What the first one writes takes memory, and what all give up comes back.
    drop(values);
    let mut clones = clones.into_iter();
    let last = clones.next().expect("ten");
    drop(clones);
    last.compact(Cpu(0));
    let left = last.stats();
    assert!(left.memory_bytes <= one.memory_bytes + (64 << 10), "{one:?} {left:?}");
    empty(&last);
}

/// Small values that are grouped later are so for all that share them.
#[test]
fn groups_are_made_and_taken_apart_for_all() {
    let small =
        |number: u64| format!("{{\"id\":{number},\"name\":\"user-{number}\"}}").into_bytes();
    let values = store("lz4", Options::default());
    // Fewer than a group has.
    (0..20).for_each(|number| put(&values, at(0, 1), number, &small(number)));
    let clones = [clone(&values), clone(&values)];
    assert_eq!(values.stats().groups, 0);
    (20..4000).for_each(|number| put(&values, at(0, 1), number, &small(number)));
    let clones = clones.into_iter().chain([clone(&values)]).collect::<Vec<_>>();
    let before = values.stats();
    assert!(before.groups > 20, "{before:?}");
    // Each has others, and then few are left of each group.
    for (clone, own) in clones.iter().zip(0..) {
        (0..4000u64).filter(|number| number % 40 != own).for_each(|number| {
            clone.remove(at(0, 1), &number.to_ne_bytes());
        });
    }
    (0..4000u64).filter(|number| number % 40 != 5).for_each(|number| {
        assert!(values.remove(at(0, 1), &number.to_ne_bytes()));
    });
    while values.upkeep(at(0, 1), 1000) {}
    let after = values.stats();
    assert!(after.groups < before.groups / 2, "{before:?} {after:?}");
    assert!(after.pool_bytes < before.pool_bytes / 2, "{before:?} {after:?}");
    for (clone, own) in clones.iter().zip(0..) {
        let most = if own == 2 { 4000 } else { 20 };
        (0..4000).for_each(|number| {
            let is_there = number % 40 == own && number < most;
            let expected = is_there.then(|| small(number));
            assert!(got(clone, at(0, 1), number) == expected, "{number} of {own}");
        });
    }
    (5..4000).step_by(40).for_each(|number| {
        assert_eq!(got(&values, at(0, 1), number), Some(small(number)));
    });
    drop(clones);
    empty(&values);
}

/// A clone is of one instant: one key is written, and then the other.
#[test]
fn a_clone_has_what_there_was_at_one_instant() {
    let values = store("lz4", Options::default());
    let value =
        |version: u64| [version.to_ne_bytes().to_vec(), contents(2, 3000, version)].concat();
    let version = |values: &Values, number: u64| {
        let value = got(values, at(1, 1), number).expect("it is always there");
        u64::from_ne_bytes(value[..8].try_into().expect("eight bytes"))
    };
    // Enough buckets between the two that both are written while one is copied.
    (10..20_000).for_each(|number| put(&values, at(0, 1), number, b"any"));
    (0..8).for_each(|number| put(&values, at(0, 1), number, &value(0)));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let ending = Ends(&ends);
        scope.spawn(|| {
            let mut round = 0;
            while !ends.load(Ordering::Relaxed) {
                round += 1;
                (0..8).for_each(|number| put(&values, at(0, 1), number, &value(round)));
            }
        });
        let seen = (0..60).map(|_| {
            let clone = clone(&values);
            let versions = (0..8).map(|number| version(&clone, number));
            (versions.collect::<Vec<u64>>(), clone.stats().values)
        });
        let seen: Vec<_> = seen.collect();
        drop(ending);
        for (versions, count) in seen {
            let is_one = versions.is_sorted_by(|a, b| a >= b) && versions[0] <= versions[7] + 1;
            assert!(is_one, "{versions:?}");
            assert_eq!(count, 19_998);
        }
    });
    empty(&values);
}

/// Threads write to all stores of a family while objects move, and clones come and go.
#[test]
fn a_family_is_used_by_threads() {
    let options = Options { recompress: recompress(0), unit: 4096, ..Options::default() };
    let values = store("lz4", options);
    let value = |number: u64, version: u64| {
        let length = [300, 3000, 20_000][number as usize % 3];
        contents(2, length, number * 1000 + version)
    };
    (0..KEYS).for_each(|number| put(&values, at(0, 1), number, &value(number, 0)));
    let clones = [clone(&values), clone(&values)];
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let ending = Ends(&ends);
        let writers: Vec<_> = clones
            .iter()
            .chain([&values])
            .zip(1..)
            .map(|(store, cpu)| {
                scope.spawn(move || {
                    let mut versions = [0; KEYS as usize];
                    let mut rng = Rng::new(u64::from(cpu));
                    for version in 1..3000 {
                        let number = rng.below(KEYS);
                        put(store, at(cpu - 1, 1), number, &value(number, version));
                        versions[number as usize] = version;
                        let number = rng.below(KEYS);
                        let expected = value(number, versions[number as usize]);
                        assert!(got(store, at(cpu - 1, 1), number) == Some(expected), "{number}");
                    }
                    (store, versions)
                })
            })
            .collect();
        scope.spawn(|| {
            let mut now = 1;
            while !ends.load(Ordering::Relaxed) {
                now += 1;
                clones[now as usize % 2].upkeep(at(2, now), 300);
                values.compact(Cpu(2));
                let other = clone(&clones[0]);
                assert_eq!(other.stats().values, KEYS);
                other.remove(at(2, now), &7u64.to_ne_bytes());
            }
        });
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        drop(ending);
        for written in written {
            let (store, versions) = written.expect("the writer ends");
            for (number, version) in (0..).zip(versions) {
                let expected = value(number, version);
                assert!(got(store, at(0, 1), number) == Some(expected), "{number}");
            }
        }
    });
    drop(clones);
    empty(&values);
}

/// Only the store that asked for it is told, and not when it is gone.
#[test]
fn the_store_that_asked_is_told() {
    for length in [100, 5000] {
        let told = Arc::new(AtomicU64::new(0));
        let tell = told.clone();
        let evicted = Some(Box::new(move |_: &values::Evicted<'_>| {
            tell.fetch_add(1, Ordering::Relaxed);
        }) as Box<values::Tell>);
        let values = store("lz4", Options { evicted, ..Options::default() });
        let put_for = |values: &Values, number: u64, ttl| {
            let value = contents(2, length, number);
            let put = values.put(at(0, 1), &number.to_ne_bytes(), &value, PutOptions { ttl });
            assert_eq!(put, Ok(()));
        };
        (0..200).for_each(|number| put_for(&values, number, Some(10)));
        let clone = clone(&values);
        (200..300).for_each(|number| put_for(&clone, number, Some(10)));
        (100..200).for_each(|number| assert!(values.remove(at(0, 1), &u64::to_ne_bytes(number))));
        while clone.upkeep(at(0, 20), 1000) {}
        assert_eq!((values.stats().values, clone.stats().values), (0, 0));
        assert_eq!((values.stats().expired, clone.stats().expired), (100, 300));
        assert_eq!(told.load(Ordering::Relaxed), 100);
        (0..50).for_each(|number| put_for(&values, number, Some(10)));
        drop(values);
        (0..50).for_each(|number| put_for(&clone, number, Some(10)));
        while clone.upkeep(at(0, 40), 1000) {}
        assert_eq!(told.load(Ordering::Relaxed), 100);
        empty(&clone);
    }
}

/// The limit is that of all of them: what they share counts once, and what is read in one stays.
#[test]
fn the_limit_is_that_of_all() {
    const LIMIT: u64 = 4 << 20;
    let values = store("lz4", Options { limit: Some(LIMIT), ..Options::default() });
    let value = |number| contents(2, 8000, number);
    (0..300).for_each(|number| put(&values, at(0, 1), number, &value(number)));
    let clones: Vec<Values> = (0..8).map(|_| clone(&values)).collect();
    assert_eq!(clones[7].stats().values, 300);
    let hot = || (0..20).for_each(|number| drop(got(&clones[3], at(0, 1), number)));
    for number in 1000..4000 {
        hot();
        put(&clones[5], at(0, 1), number, &value(number));
        let stats = values.stats();
        assert!(stats.memory_bytes <= LIMIT + (64 << 10), "{stats:?}");
    }
    for clone in &clones {
        let is_there = |number: &u64| got(clone, at(0, 1), *number) == Some(value(*number));
        assert!((0..20).filter(is_there).count() >= 18, "what is read in one stays in all");
        assert!((100..300).filter(is_there).count() < 20, "what nobody reads goes");
    }
    let evicted = clones.iter().map(|clone| clone.stats().evicted).collect::<Vec<_>>();
    assert!(evicted.iter().all(|evicted| *evicted > 200), "{evicted:?}");
    drop(clones);
    empty(&values);
}

#[test]
fn a_family_has_a_most() {
    let values = open("lz4", Options { limit: Some(64 << 20), ..Options::default() });
    let values = values.expect("a store");
    (0..100).for_each(|number| put(&values, at(0, 1), number, b"small"));
    let mut clones: Vec<Values> = (0..254).map(|_| clone(&values)).collect();
    let said = values.clone_contents(&host::Mmap).err().expect("too many").to_string();
    assert!(said.contains("255"), "{said}");
    clones.truncate(200);
    clones.push(clone(&clones[100]));
    assert_eq!(got(&clones[200], at(0, 1), 99).as_deref(), Some(&b"small"[..]));
    drop(values);
    clones.truncate(1);
    empty(&clones[0]);
}
