//! A part of the target of snapshots: a store of values that loads records of anybody.

use std::sync::Arc;

use pagealloc::{Zone, ZoneOptions};
use units::Cpu;
use values::{At, GetError, LoadError, Options, Parts, PutOptions, Recompress, Values};
use zcomp::{Compressor, Params};

const AT: At = At { cpu: Cpu(0), now: 10 };
/// The least limit.
const LIMIT: u64 = 1 << 20;

fn codec(name: &str) -> Arc<dyn Compressor> {
    zcomp::open(name, &Params::default()).expect("a codec")
}

fn store(limit: Option<u64>, group: bool) -> Values {
    let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 14)).expect("addresses");
    let recompress = Some(Recompress { codec: codec("zstd"), after: 1 });
    let options = Options { limit, group, recompress, ..Options::default() };
    let parts = Parts { frames: Arc::new(zone), cpus: 1, codec: codec("lz4"), seed: 3, options };
    Values::new(&host::Mmap, parts).expect("a store")
}

/// Nothing is left when all is cleared.
fn end(values: &Values) {
    values.clear(AT);
    let stats = values.stats();
    assert_eq!((stats.values, stats.data_bytes, stats.pool_bytes), (0, 0, 0));
}

/// Records: a kind, a length of two bytes and the contents each. The bits of `first` choose the
/// options.
///
/// Either they are refused, and the store has what it had. Or they are loaded: then each value can
/// be read, or is refused by itself, the store can be saved again, and its memory comes back.
pub(crate) fn load(first: u8, mut rest: &[u8]) {
    let values = store(Some(LIMIT), first & 1 == 0);
    values.put(AT, b"key", b"value", PutOptions::default()).expect("there is room");
    let mut loading = values.loading(AT.cpu);
    let mut is_whole = Ok(false);
    while let ([kind, low, high, after @ ..], Ok(false)) = (rest, &is_whole) {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        is_whole = loading.take(AT, u32::from(*kind), &after[..length]);
        rest = &after[length..];
    }
    match is_whole {
        Ok(true) => {
            let loaded = loading.publish(AT.cpu);
            assert!(loaded.is_ok_and(|loaded| loaded < 1 << 20));
            again(&values);
        }
        refused => {
            assert!(refused.err().is_none_or(|error| !error.to_string().is_empty()));
            drop(loading);
            let stats = values.stats();
            assert_eq!((stats.values, stats.data_bytes, stats.evicted), (1, 8, 0));
            assert_eq!(values.get_vec(AT, b"key"), Ok(Some(b"value".to_vec())));
        }
    }
    end(&values);
}

fn again(values: &Values) {
    let (mut cursor, mut keys) = (Some(values::Cursor::default()), Vec::new());
    while let Some(at) = cursor {
        cursor = values.keys(AT, at, |key, length| keys.push((key.to_vec(), length)));
    }
    // What was compressed by nobody is refused when it is read.
    let read = |values: &Values, key: &[u8]| values.get_vec(AT, key);
    for (key, length) in &keys {
        match read(values, key) {
            Ok(value) => assert_eq!(value.map(|value| value.len()), Some(*length)),
            Err(error) => assert_eq!(error, GetError::Corrupt),
        }
    }
    let (records, other) = (sim::values::saved(values, AT), store(None, true));
    match sim::values::load(&other, AT, &records) {
        Ok(_) => {
            for (key, _) in &keys {
                assert!(read(values, key) == read(&other, key), "another value");
            }
            assert_eq!(other.stats().values, keys.len() as u64);
        }
        Err(LoadError::Wrong(message)) => assert!(message.contains("decompress"), "{message}"),
        Err(error) => panic!("{error}"),
    }
    end(&other);
    let later = |now| At { now, ..AT };
    (11..20).for_each(|now| while values.upkeep(later(now), 100) {});
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let values = store(None, true);
    let put = |key: &[u8], value: &[u8], ttl| {
        values.put(AT, key, value, PutOptions { ttl }).expect("there is room");
    };
    for number in 0..60u32 {
        let text = format!("{{\"id\":{number},\"name\":\"user-{number}\",\"roles\":[\"reader\"]}}");
        put(&number.to_ne_bytes(), text.repeat(4).as_bytes(), (number % 20 == 7).then_some(50));
    }
    put(b"filled", &[7; 100_000], None);
    put(b"", b"", Some(9));
    put(b"text", "some words ".repeat(400).as_bytes(), None);
    let parts = [&[0; 16_384][..], "more words ".repeat(2000).as_bytes()].concat();
    put(b"units", &parts, None);
    let described = |first: u8| {
        let mut described = vec![first];
        for (kind, contents) in sim::values::saved(&values, AT) {
            described.push(kind as u8);
            described.extend((contents.len() as u16).to_le_bytes());
            described.extend(contents);
        }
        described
    };
    let before = described(4);
    (11..30).for_each(|now| while values.upkeep(At { now, ..AT }, 1000) {});
    vec![before, described(4), described(5)]
}
