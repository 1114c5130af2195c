//! Snapshots: what a store saves, another one has.

mod common;

use common::{at, store};
use sim::values::{contents, load, saved};
use values::{LoadError, Options, PutOptions, Recompress, Values};
use zcomp::Params;

const KEYS: u64 = 400;

/// Small values, values of a unit, of many units, and such as are filled.
fn value(number: u64) -> Vec<u8> {
    let length = match number % 8 {
        0..4 => 100 + number as usize % 700,
        4 => 3000 + number as usize,
        5 => 9000,
        6 => 100_000 + number as usize,
        _ => number as usize % 16,
    };
    contents([4, 2, 0, 3, 1][number as usize % 5], length, number)
}

fn put(values: &Values, number: u64, ttl: Option<u32>) {
    let put = values.put(at(0, 1000), &number.to_ne_bytes(), &value(number), PutOptions { ttl });
    assert_eq!(put, Ok(()));
}

fn filled(codec: &str, options: Options) -> Values {
    let values = store(codec, options);
    (0..KEYS).for_each(|number| put(&values, number, None));
    values
}

fn compare(values: &Values) {
    for number in 0..KEYS {
        let got = values.get_vec(at(0, 5), &number.to_ne_bytes());
        assert!(got == Ok(Some(value(number))), "value {number}");
    }
}

/// Nothing is left when all is cleared.
fn end(values: &Values) {
    values.clear(at(0, 1));
    let stats = values.stats();
    assert_eq!((stats.values, stats.data_bytes, stats.pool_bytes), (0, 0, 0), "{stats:?}");
}

fn cold(codec: &str) -> Options {
    let codec = zcomp::open(codec, &Params::default()).expect("a codec");
    Options { recompress: Some(Recompress { codec, after: 1 }), ..Options::default() }
}

#[test]
fn what_is_saved_is_loaded_as_it_is() {
    let values = filled("zstd", Options::default());
    let records = saved(&values, at(0, 1001));
    let bytes: usize = records.iter().map(|(_, contents)| contents.len()).sum();
    let before = values.stats();
    assert!((bytes as u64) < before.pool_bytes, "{bytes} bytes of {before:?}");
    let other = store("zstd", Options::default());
    assert_eq!(load(&other, at(0, 5), &records), Ok(KEYS));
    compare(&other);
    let after = other.stats();
    assert_eq!((after.values, after.data_bytes), (KEYS, before.data_bytes));
    assert!(before.groups > 0 && after.groups >= before.groups, "{before:?} {after:?}");
    assert!(after.pool_bytes < before.pool_bytes / 10 * 11, "{before:?} {after:?}");
    // A second time each value is replaced by itself.
    assert_eq!(load(&other, at(0, 5), &records), Ok(KEYS));
    compare(&other);
    assert_eq!((other.stats().values, other.stats().data_bytes), (KEYS, before.data_bytes));
    end(&other);
}

#[test]
fn another_codec_or_unit_is_made_anew() {
    let values = filled("lz4", Options::default());
    let records = saved(&values, at(0, 1001));
    let others: [(&str, Options); 4] = [
        ("zstd", Options::default()),
        ("lz4", Options { unit: 4096, ..Options::default() }),
        ("lz4", Options { group: false, ..Options::default() }),
        ("deflate", Options { unit: 65536, group: false, ..Options::default() }),
    ];
    for (codec, options) in others {
        let other = store(codec, options);
        assert_eq!(load(&other, at(0, 5), &records), Ok(KEYS), "{codec}");
        compare(&other);
        end(&other);
    }
}

#[test]
fn what_was_recompressed_stays_so() {
    let values = filled("lz4", cold("zstd"));
    (1000..1010).for_each(|now| while values.upkeep(at(0, now), 100_000) {});
    assert!(values.stats().recompressed > 0);
    let records = saved(&values, at(0, 1011));
    for (codec, options) in
        [("lz4", cold("zstd")), ("zstd", Options::default()), ("lz4hc", Options::default())]
    {
        let other = store(codec, options);
        assert_eq!(load(&other, at(0, 5), &records), Ok(KEYS), "{codec}");
        compare(&other);
        end(&other);
    }
}

#[test]
fn lives_go_on_with_what_they_had_left() {
    let values = store("lz4", Options::default());
    for number in 0..KEYS {
        put(&values, number, number.is_multiple_of(3).then_some(100 + number as u32 % 2 * 50));
    }
    put(&values, KEYS, Some(10));
    assert!(values.stats().groups > 0);
    let records = saved(&values, at(0, 1040));
    let other = store("lz4", Options::default());
    assert_eq!(load(&other, at(0, 5), &records), Ok(KEYS));
    for number in 0..KEYS {
        let end = if number.is_multiple_of(3) { 65 + number as u32 % 2 * 50 } else { u32::MAX };
        for now in [6, 64, 65, 114, 115, 100_000] {
            let got = other.get_vec(at(0, now), &number.to_ne_bytes()).expect("no damage");
            assert!(got == (now < end).then(|| value(number)), "value {number} at {now}");
        }
    }
    assert!(!other.contains(at(0, 5), &KEYS.to_ne_bytes()), "its life had ended");
}

#[test]
fn a_snapshot_that_is_not_whole_leaves_nothing() {
    let values = filled("lz4", Options::default());
    let records = saved(&values, at(0, 1001));
    let other = store("lz4", Options::default());
    let put = |key: &[u8]| other.put(at(0, 1), key, &value(6), PutOptions::default());
    assert_eq!((put(&0u64.to_ne_bytes()), put(b"another")), (Ok(()), Ok(())));
    let before = other.stats();
    for count in 0..records.len() {
        let mut loading = other.loading(at(0, 5).cpu);
        for (kind, contents) in &records[..count] {
            assert_eq!(loading.take(at(0, 5), *kind, contents), Ok(false));
        }
        // An entry that is cut off is refused, after those before it were taken.
        let (kind, contents) = &records[count];
        let cut = loading.take(at(0, 5), *kind, &contents[..contents.len() - 1]);
        assert!(cut.is_err() || *kind == 2, "record {count}");
        drop(loading);
        assert_eq!(other.stats(), before, "record {count}");
    }
    assert_eq!(other.get_vec(at(0, 1), &0u64.to_ne_bytes()), Ok(Some(value(6))));
    end(&other);
}

#[test]
fn records_that_cannot_be_are_refused() {
    let values = filled("lz4", Options::default());
    let records = saved(&values, at(0, 1001));
    let refused = |records: &[(u32, Vec<u8>)]| {
        let other = store("lz4", Options::default());
        let error = load(&other, at(0, 5), records).expect_err("it cannot be");
        end(&other);
        error
    };
    let said = |error: LoadError| match error {
        LoadError::Wrong(message) => message,
        other => panic!("{other:?}"),
    };
    assert!(said(refused(&records[1..])).contains("kind 2"));
    let mut others = records.clone();
    others[1].1 = b"lz9".to_vec();
    assert!(matches!(refused(&others), LoadError::Codec(message) if message.contains("lz9")));
    others[1].1 = b"lzo".to_vec();
    assert!(
        matches!(refused(&others), LoadError::Codec(message) if message.contains("pages only"))
    );
    others.remove(1);
    assert!(said(refused(&others)).contains("codec 0"));
    let mut others = records.clone();
    others.last_mut().expect("an end").1[0] ^= 1;
    assert!(said(refused(&others)).contains("came"));
    let mut others = records.clone();
    others[0].1[0] = 1;
    assert!(said(refused(&others)).contains("65536"));
}

#[test]
fn a_snapshot_that_does_not_fit_evicts_nothing() {
    let values = filled("lz4", Options::default());
    let records = saved(&values, at(0, 1001));
    let other = store("lz4", Options { limit: Some(1 << 20), ..Options::default() });
    put(&other, 1, None);
    assert_eq!(load(&other, at(0, 5), &records), Err(LoadError::Full));
    let stats = other.stats();
    assert_eq!((stats.values, stats.evicted), (1, 0));
    end(&other);
}
