//! Benchmark: allocates frames from the zone and frees them.
//!
//! ```sh
//! cargo bench -p rampack-pagealloc --bench zone
//! ```

use divan::Bencher;
use pagealloc::{Frames, Zone, ZoneOptions};
use units::Cpu;

const CPU: Cpu = Cpu(0);
/// The frames of the zone, and the frames that one round takes.
const FRAMES: u32 = 1 << 15;
const MANY: usize = 4096;

fn main() {
    divan::main();
}

fn zone() -> Zone {
    Zone::new(&host::Mmap, ZoneOptions::new(1, FRAMES)).expect("addresses")
}

/// One frame at a time, freed at once: it comes from the CPU's pcp list and returns to it.
#[divan::bench]
fn alloc_and_free(bencher: Bencher) {
    let zone = zone();
    bencher.bench_local(|| {
        let frame = zone.alloc(CPU).expect("it is empty");
        zone.free(CPU, frame);
    });
}

/// Thousands of frames, then all of them back.
#[divan::bench]
fn alloc_and_free_many(bencher: Bencher) {
    let zone = zone();
    let mut held = Vec::with_capacity(MANY);
    bencher.counter(divan::counter::ItemsCount::new(MANY)).bench_local(|| {
        held.extend((0..MANY).map_while(|_| zone.alloc(CPU)));
        assert_eq!(held.len(), MANY);
        held.drain(..).for_each(|frame| zone.free(CPU, frame));
    });
}
