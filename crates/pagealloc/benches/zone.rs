//! Benchmark: allocates frames from the zone and frees them.
//!
//! ```sh
//! cargo bench -p rampack-pagealloc --bench zone
//! ```

use divan::Bencher;
use pagealloc::{Frames, Zone, ZoneOptions};
use units::{Cpu, Order};

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

/// One block at a time, freed at once; single frames come from the CPU's pcp list and return to it.
#[divan::bench(args = [0, 4, 9])]
fn alloc_and_free(bencher: Bencher, order: u8) {
    let (zone, order) = (zone(), Order::new(order).expect("an order"));
    bencher.bench_local(|| {
        let frame = zone.alloc(CPU, order).expect("it is empty");
        zone.free(CPU, frame, order);
    });
}

/// Thousands of frames, then all of them back.
#[divan::bench]
fn alloc_and_free_many(bencher: Bencher) {
    let zone = zone();
    let mut held = Vec::with_capacity(MANY);
    bencher.counter(divan::counter::ItemsCount::new(MANY)).bench_local(|| {
        held.extend((0..MANY).map_while(|_| zone.alloc(CPU, Order::ZERO)));
        assert_eq!(held.len(), MANY);
        held.drain(..).for_each(|frame| zone.free(CPU, frame, Order::ZERO));
    });
}
