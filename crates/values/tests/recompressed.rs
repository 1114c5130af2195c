//! Values that are not read get smaller.

mod common;

use std::sync::Barrier;
use std::thread;

use common::{at, store};
use sim::values::contents;
use values::{Options, PutOptions, Recompress, Values};
use zcomp::Params;

const AFTER: u32 = 60;

fn options() -> Options {
    let codec = zcomp::open("zstd", &Params::default()).expect("a codec");
    Options { recompress: Some(Recompress { codec, after: AFTER }), ..Options::default() }
}

/// What the second codec makes larger stays as it is, after one try.
#[test]
fn what_does_not_get_smaller_is_tried_once() {
    let codec = zcomp::open("lz4", &Params::default()).expect("a codec");
    let options =
        || Options { recompress: Some(Recompress { codec: codec.clone(), after: 1 }), ..options() };
    let values = store("zstd", options());
    (0..40).for_each(|number| put(&values, number, &contents(2, 9000, number)));
    (100..400).for_each(|number| put(&values, number, &contents(2, 200, number)));
    (2..10).for_each(|now| upkeep(&values, now));
    let before = values.stats();
    assert!(before.recompressed < 4, "{before:?}");
    // A pass that compresses nothing is done at once.
    (10..20).for_each(|now| assert!(!values.upkeep(at(0, now), 400), "it is tried again"));
    assert_eq!(values.stats(), before);
    (0..40).for_each(|number| reads(&values, 20, number, &contents(2, 9000, number)));
    (100..400).for_each(|number| reads(&values, 20, number, &contents(2, 200, number)));
    values.clear(at(0, 20));
    assert_eq!((values.stats().pool_bytes, values.stats().data_bytes), (0, 0));
}

fn put(values: &Values, number: u64, value: &[u8]) {
    let put = values.put(at(0, 1), &number.to_ne_bytes(), value, PutOptions::default());
    assert_eq!(put, Ok(()));
}

fn reads(values: &Values, now: u32, number: u64, value: &[u8]) {
    let got = values.get_vec(at(0, now), &number.to_ne_bytes());
    assert!(got.as_ref().is_ok_and(|it| it.as_deref() == Some(value)), "value {number}");
}

fn upkeep(values: &Values, now: u32) {
    while values.upkeep(at(0, now), 1000) {}
}

/// A value of one unit, of several, or of very many.
fn value(number: u64) -> Vec<u8> {
    let kind = if number % 10 == 3 { 3 } else { 2 };
    contents(kind, [3000, 12_000, 50_000, 300_000][number as usize % 4], number)
}

#[test]
fn values_that_are_not_read_get_smaller() {
    let values = store("lz4", options());
    (0..60).for_each(|number| put(&values, number, &value(number)));
    upkeep(&values, 10);
    let before = values.stats();
    // It was not long enough.
    upkeep(&values, 10 + AFTER - 1);
    assert_eq!((values.stats().recompressed, values.stats().saved_bytes), (0, 0));
    (0..20).for_each(|number| reads(&values, 20, number, &value(number)));
    upkeep(&values, 10 + AFTER);
    let after = values.stats();
    assert!((36..=40).contains(&after.recompressed) && after.values == 60, "{after:?}");
    assert_eq!(after.data_bytes, before.data_bytes);
    assert!(after.saved_bytes > before.pool_bytes / 10, "{before:?} {after:?}");
    assert!(after.pool_bytes + after.saved_bytes / 2 < before.pool_bytes, "{before:?} {after:?}");
    (0..60).for_each(|number| reads(&values, 100, number, &value(number)));
    // Once is enough; what was read lately stays as it is again.
    upkeep(&values, 10 + 2 * AFTER);
    assert_eq!(values.stats().recompressed, after.recompressed);
    upkeep(&values, 10 + 3 * AFTER);
    let all = values.stats().recompressed;
    assert!((54..=60).contains(&all), "{all}");
    upkeep(&values, 10 + 9 * AFTER);
    assert_eq!(values.stats().recompressed, all);
    // What is stored again is as at first, and moves and ends as others.
    put(&values, 7, &value(8));
    values.compact(units::Cpu(0));
    (0..60).for_each(|number| {
        reads(&values, 700, number, &value(if number == 7 { 8 } else { number }));
    });
    values.clear(at(0, 700));
    assert_eq!((values.stats().pool_bytes, values.stats().data_bytes), (0, 0));
}

#[test]
fn groups_get_smaller_unless_they_are_read() {
    const KEYS: u64 = 4000;
    let small = |number: u64| {
        let id = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{{\"id\":{id},\"name\":\"user-{number}\",\"token\":\"{id:016x}\"}}").into_bytes()
    };
    let values = store("lz4", options());
    (0..KEYS).for_each(|number| put(&values, number, &small(number)));
    upkeep(&values, 10);
    let before = values.stats();
    assert!(before.groups > 20, "{before:?}");
    // Neighbours are in one group.
    (0..KEYS / 2).for_each(|number| reads(&values, 20, number, &small(number)));
    upkeep(&values, 10 + AFTER);
    let after = values.stats();
    let about_half = before.groups / 3..before.groups / 3 * 2;
    assert!(about_half.contains(&after.recompressed), "{before:?} {after:?}");
    assert_eq!((after.groups, after.values), (before.groups, KEYS));
    assert!(after.saved_bytes > before.pool_bytes / 20, "{before:?} {after:?}");
    (0..KEYS).for_each(|number| reads(&values, 80, number, &small(number)));
    values.compact(units::Cpu(0));
    (0..KEYS).filter(|number| number % 8 != 0).for_each(|number| {
        assert!(values.remove(at(0, 80), &number.to_ne_bytes()));
    });
    upkeep(&values, 81);
    (0..KEYS).step_by(8).for_each(|number| reads(&values, 82, number, &small(number)));
    values.clear(at(0, 82));
    assert_eq!((values.stats().pool_bytes, values.stats().data_bytes), (0, 0));
}

#[test]
fn a_second_codec_takes_units() {
    let codec = zcomp::open("lzo", &Params::default()).expect("a codec");
    let options =
        Options { recompress: Some(Recompress { codec, after: 1 }), ..Options::default() };
    let said = common::open("lz4", options).err().expect("it takes pages only").to_string();
    assert!(said.contains("lzo") && said.contains("zstd"), "{said}");
}

#[test]
fn a_newer_value_stays_when_an_older_one_is_recompressed() {
    let codec = zcomp::open("zstd", &Params::default()).expect("a codec");
    let recompress = Some(Recompress { codec, after: 1 });
    let values = store("lz4", Options { recompress, ..Options::default() });
    let [older, newer] = [1, 2].map(|seed| contents(2, 300_000, seed));
    for round in 0..60 {
        let now = 10 * round + 1;
        put(&values, 7, &older);
        // It is idle from then on.
        upkeep(&values, now);
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                upkeep(&values, now + 5);
            });
            together.wait();
            put(&values, 7, &newer);
        });
        reads(&values, now + 6, 7, &newer);
    }
    values.clear(at(0, 1000));
    assert_eq!((values.stats().pool_bytes, values.stats().data_bytes), (0, 0));
}
