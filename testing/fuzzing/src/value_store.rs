//! Operations on a store of values.

use std::sync::Arc;

use pagealloc::{Zone, ZoneOptions};
use values::{Options, Parts, Recompress, Values};
use zcomp::{Compressor, Params};

/// Bytes of operations that are looked at.
const MOST: usize = 240;

/// Operations on a store beside a map, as [`sim::values`] reads them from bytes. The first byte
/// chooses the options. Every outcome must be that of the map, and at the end no object is left.
pub fn value_store(input: &[u8]) {
    let [options, operations @ ..] = input else { return };
    let chosen = Options {
        limit: (options & 1 != 0).then_some(1 << 20),
        evict: options & 2 != 0,
        group: options & 4 != 0,
        unit: if options & 8 != 0 { 4096 } else { 16384 },
        recompress: (options & 16 != 0).then(|| Recompress { codec: codec("zstd"), after: 4 }),
        evicted: None,
    };
    let make = |options| {
        let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 16)).expect("address space");
        let parts =
            Parts { frames: Arc::new(zone), cpus: 1, codec: codec("lz4"), seed: 1, options };
        Values::new(&host::Mmap, parts).expect("a store")
    };
    let mut operations = operations.iter().take(MOST);
    let cloned = |values: &Values| values.clone_contents(&host::Mmap).expect("addresses");
    sim::values::run(chosen, make, cloned, || operations.next().copied());
}

fn codec(name: &str) -> Arc<dyn Compressor> {
    zcomp::open(name, &Params::default()).expect("a codec")
}

pub fn seeds() -> Vec<Vec<u8>> {
    // Stores of small values, then reads, removals, upkeep and a move of objects.
    let puts = |lengths: u8, count: u8| {
        (0..count).flat_map(move |n| [0, n, n, lengths.wrapping_add(n % 32), 1])
    };
    let rest = [[13, 20, 19, 20, 10, 90], [21, 20, 21, 21, 25, 255], [27, 8, 24, 9, 25, 200]];
    let all = |options: u8, lengths: u8, count: u8| {
        let start = [options].into_iter().chain(puts(lengths, count));
        start.chain(rest.concat()).chain(puts(lengths / 2, count)).chain([28, 27, 25, 7]).collect()
    };
    let runs =
        [(4, 128, 20), (0, 160, 10), (15, 130, 20), (5, 200, 20), (12, 250, 9), (20, 150, 20)];
    runs.map(|(options, lengths, count)| all(options, lengths, count)).into()
}
