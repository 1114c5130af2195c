//! Stores of values by keys, as a program sees them. The crate `values` has the tests of the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rampack::{Algorithm, Error, Rampack, Reason, Store, StoreOptions, Upkeep};

fn rampack() -> Rampack {
    Rampack::builder().upkeep(Upkeep::Manual).build().unwrap()
}

fn store() -> Store {
    rampack().store(StoreOptions::new()).unwrap()
}

#[test]
fn values_come_back_whole_in_part_and_in_numbers() {
    let store = store();
    let value = |n: usize| format!("value {n} ").repeat(1 + n * 37 % 5000).into_bytes();
    let keys: Vec<String> = (0..200).map(|n| format!("key {n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        store.put(key, value(n)).unwrap();
    }
    let mut into = vec![0; 100_000];
    for (n, key) in keys.iter().enumerate() {
        let value = value(n);
        assert_eq!(store.get(key).unwrap().as_ref(), Some(&value));
        assert_eq!(store.len_of(key), Some(value.len()));
        assert_eq!(store.get_into(key, &mut into).unwrap(), Some(value.len()));
        assert!(into[..value.len()] == value);
        let (from, end) = (value.len() / 3, value.len() / 2);
        let read = store.get_range(key, from, &mut into[..end - from]).unwrap();
        assert_eq!(read, Some(end - from));
        assert!(into[..end - from] == value[from..end]);
    }
    let two = store.get_many(&[b"key 7", b"none"]).unwrap();
    assert_eq!(two, [Some(value(7)), None]);
    let seen: BTreeMap<Vec<u8>, usize> = store.keys().collect();
    assert_eq!(seen.len(), 200);
    assert!(keys.iter().enumerate().all(|(n, key)| seen[key.as_bytes()] == value(n).len()));
    store.put_many(&[(b"key 7", b"new"), (b"more", b"")]).unwrap();
    assert_eq!(store.get("key 7").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(store.get("more").unwrap().as_deref(), Some(&b""[..]));
    assert!(store.remove("more") && !store.remove("more") && !store.contains("more"));
    assert_eq!(store.stats().values, 200);
    store.clear();
    assert_eq!((store.stats().values, store.stats().data_bytes), (0, 0));
}

#[test]
fn errors_name_what_is_allowed() {
    let rampack = rampack();
    let refused = |options: StoreOptions| match rampack.store(options) {
        Err(Error::Invalid(message)) => message.into_owned(),
        other => panic!("{:?}", other.err()),
    };
    assert!(refused(StoreOptions::new().unit(1000)).contains("4096"));
    assert!(refused(StoreOptions::new().limit(1000)).contains("1048576"));
    assert!(refused(StoreOptions::new().algorithm(Algorithm::LZO)).contains("zstd"));
    let store = rampack.store(StoreOptions::new()).unwrap();
    let said = store.put(vec![0; 1025], "").unwrap_err();
    assert!(matches!(&said, Error::Invalid(message) if message.contains("1024")), "{said}");
    store.put("key", "value").unwrap();
    assert_eq!(store.get_into("key", &mut [0; 4]), Err(Error::TooSmall(5)));
}

#[test]
fn a_store_stays_within_its_limit_and_tells_what_goes() {
    let gone = Arc::new(Mutex::new(BTreeMap::new()));
    let list = gone.clone();
    let options =
        StoreOptions::new().limit(2 << 20).algorithm(Algorithm::ZSTD).on_evict(move |left| {
            assert_eq!(left.reason(), Reason::Evicted);
            list.lock().unwrap().insert(left.key().to_vec(), left.value().unwrap());
        });
    let store = rampack().store(options).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let values: Vec<Vec<u8>> =
        (0..1000).map(|_| (0..5000).map(|_| random.u8(..)).collect()).collect();
    for (n, value) in values.iter().enumerate() {
        store.put(n.to_string(), value).unwrap();
    }
    let stats = store.stats();
    assert!(stats.memory_bytes <= (2 << 20) + (64 << 10), "{stats:?}");
    let gone = gone.lock().unwrap();
    assert_eq!(stats.evicted as usize, gone.len());
    assert!(gone.len() > 500);
    for (n, value) in values.iter().enumerate() {
        let key = n.to_string();
        match gone.get(key.as_bytes()) {
            Some(left) => assert!(left == value && !store.contains(&key)),
            None => assert!(store.get(&key).unwrap().as_ref() == Some(value)),
        }
    }
}

#[test]
fn a_store_that_does_not_evict_is_full() {
    let store = rampack().store(StoreOptions::new().limit(1 << 20).evict(false)).unwrap();
    let mut random = fastrand::Rng::with_seed(6);
    let mut value = || (0..10_000).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let full = (0..1000).find_map(|n: u32| store.put(n.to_be_bytes(), value()).err());
    assert_eq!(full, Some(Error::Full));
    store.set_limit(2 << 20).unwrap();
    store.put("next", value()).unwrap();
}

#[test]
fn the_memory_of_the_process_is_a_limit_too() {
    let rampack = Rampack::builder().memory(4 << 20).upkeep(Upkeep::Manual).build().unwrap();
    let store = rampack.store(StoreOptions::new()).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for n in 0..2000u32 {
        let value: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
        store.put(n.to_be_bytes(), value).unwrap();
    }
    assert!(store.stats().evicted > 500);
    assert!(rampack.memory().used_bytes <= 4 << 20);
    drop(store);
    assert_eq!(rampack.memory().used_bytes, 0, "a store that is gone takes no memory");
}

#[test]
fn values_that_are_not_read_take_less() {
    let rampack = rampack();
    let options = StoreOptions::new().recompress(Algorithm::ZSTD, Duration::ZERO);
    let store = rampack.store(options).unwrap();
    let value = |n: u32| format!("value {n} of {} and {} ", n * 7919, n * 31).repeat(400);
    (0..200).for_each(|n: u32| store.put(n.to_be_bytes(), value(n)).unwrap());
    let before = store.stats();
    rampack.upkeep().unwrap();
    assert_eq!(store.stats().recompressed, 0);
    (0..100).for_each(|n: u32| assert!(store.contains(n.to_be_bytes())));
    // In a round there is time for some.
    for _ in 0..8 {
        rampack.upkeep().unwrap();
    }
    (0..200).for_each(|n: u32| {
        assert_eq!(store.get(n.to_be_bytes()).unwrap(), Some(value(n).into_bytes()));
    });
    let after = store.stats();
    assert_eq!((after.recompressed, after.data_bytes), (200, before.data_bytes));
    assert!(after.saved_bytes > before.memory_bytes / 8, "{before:?} {after:?}");
    assert!(after.memory_bytes + after.saved_bytes / 2 < before.memory_bytes, "{after:?}");
    let lzo = StoreOptions::new().recompress(Algorithm::LZO, Duration::ZERO);
    let said = rampack.store(lzo).err().unwrap().to_string();
    assert!(said.contains("lzo") && said.contains("zstd"), "{said}");
}

#[test]
fn a_clone_shares_memory_until_it_is_written() {
    let rampack = rampack();
    let options = StoreOptions::new().recompress(Algorithm::ZSTD, Duration::ZERO);
    let store = rampack.store(options).unwrap();
    let value = |n: usize, version: usize| format!("{n} of {version} ").repeat(1000 + n);
    (0..500).for_each(|n| store.put(format!("{n}"), value(n, 0)).unwrap());
    let one = store.stats();
    let clone = store.clone_contents().unwrap();
    let then = clone.stats();
    assert_eq!((then.values, then.data_bytes), (one.values, one.data_bytes));
    assert!(then.memory_bytes < one.memory_bytes + (32 << 10), "{one:?} {then:?}");
    store.put("7", value(7, 1)).unwrap();
    clone.put("8", value(8, 2)).unwrap();
    assert!(store.remove("9") && clone.contains("9"));
    // Upkeep is that of both.
    for _ in 0..100 {
        rampack.upkeep().unwrap();
    }
    assert!(clone.stats().recompressed > 300, "{:?}", clone.stats());
    drop(store);
    for n in 0..500 {
        let version = if n == 8 { 2 } else { 0 };
        assert_eq!(clone.get(format!("{n}")).unwrap(), Some(value(n, version).into_bytes()));
    }
    let mut file = Vec::new();
    assert_eq!(clone.clone_contents().unwrap().save(&mut file), Ok(500));
}

#[test]
fn upkeep_ends_lives() {
    let rampack = rampack();
    let store = rampack.store(StoreOptions::new()).unwrap();
    store.put_for("gone", "soon", Duration::ZERO).unwrap();
    store.put_for("here", "for long", Duration::from_secs(1 << 20)).unwrap();
    assert_eq!(store.get("gone").unwrap(), None);
    assert_eq!(store.stats().values, 2);
    rampack.upkeep().unwrap();
    let stats = store.stats();
    assert_eq!((stats.values, stats.expired), (1, 1));
    assert!(store.contains("here"));
}

#[test]
fn a_store_is_for_all_threads() {
    fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    let store = store();
    is_shared(&store);
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let store = store.clone();
            scope.spawn(move || {
                for n in 0..2000u32 {
                    let key = [&[thread][..], &n.to_be_bytes()].concat();
                    store.put(&key, n.to_string().repeat(20)).unwrap();
                    assert_eq!(store.get(&key).unwrap(), Some(n.to_string().repeat(20).into()));
                }
            });
        }
    });
    assert_eq!(store.stats().values, 4000);
}
