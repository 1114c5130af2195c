//! The suite: operations beside a map, with all options. See `sim::values`.

mod common;

use testkit::Rng;
use values::{Options, Recompress};
use zcomp::Params;

/// Does `steps` operations with these options.
fn run(test: &str, codec: &str, options: Options, steps: usize) {
    let mut rng = Rng::new(testkit::seed(test));
    let mut left = steps * 4;
    let next = || {
        left = left.checked_sub(1)?;
        Some(rng.next_u64() as u8)
    };
    sim::values::run(options, |options| common::store(codec, options), common::clone, next);
}

#[test]
fn a_store_is_as_the_model() {
    run("a_store_is_as_the_model", "lz4", Options::default(), 6000);
}

#[test]
fn small_units_and_no_groups_are_as_the_model() {
    let options = Options { unit: 4096, group: false, ..Options::default() };
    run("small_units_and_no_groups_are_as_the_model", "zstd", options, 2500);
}

#[test]
fn small_units_with_groups_are_as_the_model() {
    let options = Options { unit: 4096, ..Options::default() };
    run("small_units_with_groups_are_as_the_model", "deflate", options, 2000);
}

#[test]
fn large_units_are_as_the_model() {
    let options = Options { unit: 65536, ..Options::default() };
    run("large_units_are_as_the_model", "lz4hc", options, 1500);
}

fn recompress(codec: &str) -> Option<Recompress> {
    let codec = zcomp::open(codec, &Params::default()).expect("a codec");
    Some(Recompress { codec, after: 4 })
}

#[test]
fn a_store_that_recompresses_is_as_the_model() {
    let options = Options { recompress: recompress("zstd"), ..Options::default() };
    run("a_store_that_recompresses_is_as_the_model", "lz4", options, 6000);
}

#[test]
fn a_store_that_recompresses_and_evicts_is_as_the_model() {
    let recompress = recompress("deflate");
    let options = Options { limit: Some(1 << 20), unit: 8192, recompress, ..Options::default() };
    run("a_store_that_recompresses_and_evicts_is_as_the_model", "lz4", options, 4000);
}

#[test]
fn a_store_that_evicts_is_as_the_model() {
    let options = Options { limit: Some(1 << 20), ..Options::default() };
    run("a_store_that_evicts_is_as_the_model", "lz4", options, 6000);
}

#[test]
fn a_store_that_refuses_is_as_the_model() {
    let options = Options { limit: Some(1 << 20), evict: false, ..Options::default() };
    run("a_store_that_refuses_is_as_the_model", "zstd", options, 6000);
}
