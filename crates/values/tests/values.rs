//! What a store does, one behaviour a test.

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use common::{at, open, store};
use sim::values::contents;
use values::{GetError, MAX_KEY, MAX_VALUE, Options, PutError, PutOptions, Reason, Values};

/// Stores a value that stays.
fn put(values: &Values, key: &str, value: &[u8]) {
    let stored = values.put(at(0, 1), key.as_bytes(), value, PutOptions::default());
    assert_eq!(stored, Ok(()), "{key}");
}

fn get(values: &Values, key: &str) -> Option<Vec<u8>> {
    let mut into = vec![0; values.len_of(at(0, 1), key.as_bytes())?];
    let length = values.get(at(0, 1), key.as_bytes(), &mut into);
    assert_eq!(length, Ok(Some(into.len())));
    Some(into)
}

/// A value as a program keeps it in a cache of small values.
fn small(number: u64) -> Vec<u8> {
    let id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = format!(
        "{{\"id\":{},\"name\":\"user-{number}\",\"email\":\"user{number}@example.org\",\
         \"token\":\"{id:016x}\",\"roles\":[\"reader\",\"writer\"],\"visits\":{}}}",
        id >> 40,
        number % 977
    );
    text.into_bytes()
}

#[test]
fn errors_say_what_is_allowed() {
    let refused =
        |codec: &str, options: Options| open(codec, options).err().map(|error| error.to_string());
    let unit = Options { unit: 5000, ..Options::default() };
    let said = refused("lz4", unit).expect("an error");
    assert!(said.contains("5000") && said.contains("65536"), "{said}");
    let limit = Options { limit: Some(4096), ..Options::default() };
    let said = refused("lz4", limit).expect("an error");
    assert!(said.contains("4096") && said.contains("1048576"), "{said}");
    for codec in ["lzo", "lzo-rle", "842"] {
        let said = refused(codec, Options::default()).expect("an error");
        assert!(said.contains(codec) && said.contains("zstd"), "{said}");
    }
    let values = store("lz4", Options::default());
    let long = vec![0; MAX_VALUE + 1];
    let put = |key: &[u8], value: &[u8]| values.put(at(0, 1), key, value, PutOptions::default());
    assert_eq!(put(&long[..MAX_KEY + 1], b""), Err(PutError::KeyTooLong(MAX_KEY + 1)));
    assert_eq!(put(b"", &long), Err(PutError::ValueTooLong(MAX_VALUE + 1)));
    assert_eq!(put(&long[..MAX_KEY], &long[..MAX_VALUE]), Ok(()));
    assert_eq!(values.get(at(0, 1), &long[..MAX_KEY], &mut []), Err(GetError::TooSmall(MAX_VALUE)));
    assert!(values.set_limit(Some(1)).is_err());
}

#[test]
fn small_values_are_compressed_together() {
    let bytes = [true, false].map(|group| {
        let values = store("lz4", Options { group, ..Options::default() });
        (0..10_000).for_each(|n| put(&values, &format!("user:{n}"), &small(n)));
        for n in 0..10_000 {
            assert!(get(&values, &format!("user:{n}")) == Some(small(n)), "value {n}");
        }
        let stats = values.stats();
        assert_eq!(stats.groups > 100, group, "{stats:?}");
        stats.pool_bytes
    });
    assert!(bytes[0] * 3 < bytes[1] * 2, "together {}, one by one {}", bytes[0], bytes[1]);
}

#[test]
fn a_larger_value_with_the_word_of_a_small_one_stays_as_it_is() {
    // The head of the larger value takes the place of the small one, which waits for a group.
    for noise in (400..600).step_by(8) {
        let values = store("lz4", Options::default());
        put(&values, "key", &contents(0, 520, 1));
        assert!(values.remove(at(0, 1), b"key"));
        values.upkeep(at(0, 1), 1);
        let larger = [contents(0, noise, 2), vec![0; 2500]].concat();
        put(&values, "key", &larger);
        (0..200).for_each(|n| put(&values, &format!("user:{n}"), &small(n)));
        assert!(values.stats().groups > 0);
        assert!(get(&values, "key") == Some(larger), "after {noise} bytes of noise");
    }
}

#[test]
fn a_group_whose_members_die_is_made_anew() {
    let values = store("lz4", Options::default());
    (0..5000).for_each(|n| put(&values, &format!("user:{n}"), &small(n)));
    let before = values.stats();
    for n in (0..5000).filter(|n| n % 4 != 0) {
        assert!(values.remove(at(0, 1), format!("user:{n}").as_bytes()));
    }
    while values.upkeep(at(0, 1), 100) {}
    values.compact(units::Cpu(0));
    let after = values.stats();
    assert!(after.groups * 2 < before.groups, "{before:?} {after:?}");
    assert!(after.pool_bytes * 2 < before.pool_bytes, "{before:?} {after:?}");
    for n in 0..5000 {
        let value = get(&values, &format!("user:{n}"));
        assert_eq!(value, (n % 4 == 0).then(|| small(n)), "value {n}");
    }
}

#[test]
fn memory_shrinks_with_the_values() {
    const ALL: u64 = 40_000;
    // Small values in groups, and others, of which few are many bytes.
    let values = [small as fn(u64) -> Vec<u8>, |n| contents(0, 1500, n)];
    for (value, all) in values.into_iter().zip([ALL, ALL / 2]) {
        let [shrunk, fresh] = [true, false].map(|shrinks| {
            let values = store("lz4", Options::default());
            let stay = |n: &u64| n.is_multiple_of(100);
            (0..all).filter(|n| shrinks || stay(n)).for_each(|n| {
                put(&values, &format!("user:{n}"), &value(n));
            });
            for n in (0..all).filter(|n| shrinks && !stay(n)) {
                assert!(values.remove(at(0, 1), format!("user:{n}").as_bytes()));
            }
            while values.upkeep(at(0, 1), 1000) {}
            values.compact(units::Cpu(0));
            for n in 0..all {
                let there = values.contains(at(0, 1), format!("user:{n}").as_bytes());
                assert_eq!(there, stay(&n), "value {n}");
            }
            values.stats()
        });
        assert!(shrunk.index_bytes <= fresh.index_bytes * 6 / 5 + 8192, "{shrunk:?} {fresh:?}");
        let most = fresh.memory_bytes * 6 / 5 + (32 << 10);
        assert!(shrunk.memory_bytes <= most, "{shrunk:?} {fresh:?}");
    }
}

#[test]
fn values_that_are_read_outlive_others_at_the_limit() {
    for length in [200, 20_000] {
        let values = store("lz4", Options { limit: Some(1 << 20), ..Options::default() });
        let value = |n: u64| contents(0, length, n + 1);
        let key = |n: u64| format!("key:{n}");
        let hot = 500_000 / length as u64 / 2;
        (0..hot).for_each(|n| put(&values, &key(n), &value(n)));
        for n in hot..hot * 20 {
            put(&values, &key(n), &value(n));
            // All of them are read before the hand comes by again.
            (0..hot).filter(|hot| (hot + n) % 10 == 0).for_each(|hot| {
                let _ = get(&values, &key(hot));
            });
        }
        let there = (0..hot).filter(|n| get(&values, &key(*n)) == Some(value(*n))).count() as u64;
        let stats = values.stats();
        assert!(stats.evicted > hot, "{stats:?}");
        assert!(there * 10 >= hot * 9, "{there} of {hot} values of {length} bytes; {stats:?}");
    }
}

#[test]
fn members_of_groups_that_are_read_outlive_others_at_the_limit() {
    const HOT: u64 = 300;
    let values = store("lz4", Options { limit: Some(1 << 20), ..Options::default() });
    let key = |n: u64| format!("user:{n}");
    (0..HOT).for_each(|n| put(&values, &key(n), &small(n)));
    for n in HOT..30_000 {
        put(&values, &key(n), &small(n));
        // Each is read once in a hundred stores: the hand needs thousands for a round.
        (0..HOT).filter(|hot| (hot + n).is_multiple_of(100)).for_each(|hot| {
            let _ = get(&values, &key(hot));
        });
    }
    let there = (0..HOT).filter(|n| get(&values, &key(*n)) == Some(small(*n))).count() as u64;
    let stats = values.stats();
    assert!(stats.evicted > 5000 && stats.groups > 20, "{stats:?}");
    assert!(there * 10 >= HOT * 9, "{there} of {HOT} values; {stats:?}");
}

#[test]
fn evicted_values_are_told_once_with_their_bytes() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let evicted = move |evicted: &values::Evicted<'_>| {
        let mut value = vec![0; evicted.value_len()];
        evicted.read(&mut value).expect("no damage");
        assert_eq!(evicted.reason(), Reason::Evicted);
        list.lock().expect("no panic before").push((evicted.key().to_vec(), value));
    };
    let options =
        Options { limit: Some(1 << 20), evicted: Some(Box::new(evicted)), ..Options::default() };
    let values = store("zstd", options);
    let value = |n: u64| contents(0, if n.is_multiple_of(2) { 300 } else { 9000 }, n + 1);
    (0..2000).for_each(|n| put(&values, &n.to_string(), &value(n)));
    let told = told.lock().expect("no panic before");
    let keys: BTreeSet<_> = told.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys.len(), told.len(), "a value was told twice");
    for n in 0..2000 {
        let is_told = keys.contains(n.to_string().as_bytes());
        assert_eq!(get(&values, &n.to_string()), (!is_told).then(|| value(n)), "value {n}");
    }
    for (key, bytes) in told.iter() {
        let n: u64 = String::from_utf8_lossy(key).parse().expect("a number");
        assert!(*bytes == value(n), "value {n}");
    }
    assert_eq!(values.stats().evicted, told.len() as u64);
}

#[test]
fn a_store_that_does_not_evict_refuses() {
    let options = Options { limit: Some(1 << 20), evict: false, ..Options::default() };
    let values = store("lz4", options);
    let mut stored = 0;
    let refused = loop {
        let value = contents(0, 10_000, stored + 1);
        let put = values.put(at(0, 1), &stored.to_ne_bytes(), &value, PutOptions::default());
        match put {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, PutError::Full);
    assert!((60..=105).contains(&stored), "{stored} values of 10 kB in 1 MiB");
    assert_eq!((values.stats().values, values.stats().refused), (stored, 1));
    // Room for one is made by hand.
    assert!(values.remove(at(0, 1), &0u64.to_ne_bytes()));
    let value = contents(0, 10_000, 1);
    assert_eq!(values.put(at(0, 1), b"next", &value, PutOptions::default()), Ok(()));
}

#[test]
fn a_value_that_never_fits_evicts_nothing() {
    let values = store("lz4", Options { limit: Some(1 << 20), ..Options::default() });
    (0..20).for_each(|n| put(&values, &n.to_string(), &contents(0, 20_000, n + 1)));
    let huge = contents(0, 4 << 20, 9);
    let refused = values.put(at(0, 1), b"huge", &huge, PutOptions::default());
    assert_eq!(refused, Err(PutError::Full));
    assert_eq!(values.stats().values, 20);
}

#[test]
fn lives_end_and_upkeep_takes_the_memory() {
    let values = store("lz4", Options::default());
    for n in 0..3000u64 {
        let ttl = n.is_multiple_of(2).then_some(10);
        let length = if n.is_multiple_of(3) { 5000 } else { 150 };
        let value = contents(0, length, n + 1);
        let stored = values.put(at(0, 100), &n.to_ne_bytes(), &value, PutOptions { ttl });
        assert_eq!(stored, Ok(()));
    }
    assert!(values.contains(at(0, 109), &0u64.to_ne_bytes()));
    assert!(!values.contains(at(0, 110), &0u64.to_ne_bytes()));
    assert_eq!(values.stats().values, 3000);
    while values.upkeep(at(0, 110), 64) {}
    let stats = values.stats();
    assert_eq!((stats.values, stats.expired, stats.evicted), (1500, 1500, 0));
    for n in 0..3000u64 {
        assert_eq!(values.contains(at(0, 111), &n.to_ne_bytes()), n % 2 == 1);
    }
    assert!(!values.remove(at(0, 110), &0u64.to_ne_bytes()), "its life had ended");
}

#[test]
fn a_range_may_end_or_begin_behind_the_value() {
    let values = store("lz4", Options { unit: 4096, ..Options::default() });
    let value = |n: u64| contents(2, [300, 3000, 50_000][n as usize % 3], n);
    (0..300).for_each(|n| put(&values, &n.to_string(), &value(n)));
    assert!(values.stats().groups > 0);
    for n in 0..300 {
        let value = value(n);
        for from in [0, 1, 4095, 4096, value.len() - 1, value.len(), value.len() + 1, 1 << 30] {
            let mut into = vec![0; 5000];
            let part =
                &value[from.min(value.len())..(from.min(value.len()) + 5000).min(value.len())];
            let got = values.get_range(at(0, 1), n.to_string().as_bytes(), from, &mut into);
            assert_eq!(got, Ok(Some(part.len())), "value {n} from {from}");
            assert!(into[..part.len()] == *part, "value {n} from {from}");
        }
    }
}

#[test]
fn what_repeats_or_is_zero_takes_no_memory() {
    let values = store("lz4", Options::default());
    for n in 0..64 {
        put(&values, &format!("zeroes {n}"), &vec![0; 1 << 20]);
    }
    let stats = values.stats();
    assert!(stats.data_bytes > 64 << 20 && stats.pool_bytes < 64 << 10, "{stats:?}");
    assert_eq!(get(&values, "zeroes 5"), Some(vec![0; 1 << 20]));
}

#[test]
fn memory_after_churn_is_as_before() {
    let values = store("lz4", Options::default());
    let value = |n: u64, round: u64| {
        contents(4 * (n % 2) as u8, 500 + (n * 7919 + round * 31) as usize % 30_000, n + round)
    };
    (0..1000).for_each(|n| put(&values, &n.to_string(), &value(n, 0)));
    let before = values.stats();
    for round in 1..8 {
        (0..1000)
            .for_each(|n| put(&values, &(n * 7 % 1000).to_string(), &value(n * 7 % 1000, round)));
        while values.upkeep(at(0, 1), 1000) {}
    }
    let after = values.stats();
    let per_byte = |stats: &values::Stats| stats.memory_bytes as f64 / stats.data_bytes as f64;
    let ratio = per_byte(&after) / per_byte(&before);
    assert!(ratio < 1.1, "{ratio}: {before:?} {after:?}");
    (0..1000).for_each(|n| assert!(get(&values, &n.to_string()) == Some(value(n, 7)), "value {n}"));
}
