//! Benchmark: stores, reads and frees objects of several lengths.
//!
//! ```sh
//! cargo bench -p rampack-zsmalloc --bench pool
//! ```

use std::sync::Arc;

use divan::Bencher;
use pagealloc::{Frames, Zone, ZoneOptions};
use units::{Cpu, PAGE_SIZE};
use zsmalloc::{Handle, Pool, Room};

const CPU: Cpu = Cpu(0);
/// Lengths: objects within one frame, one over the end of a frame, and a page.
const LENGTHS: [usize; 4] = [100, 1000, 3000, PAGE_SIZE];
/// Objects in the pool at a time.
const OBJECTS: usize = 4096;
const AT_ONCE: u32 = 256;

fn main() {
    divan::main();
}

struct Site {
    pool: Pool,
}

impl Site {
    fn new() -> Site {
        let zone = Zone::new(&host::Mmap, ZoneOptions::new(1, 1 << 15)).expect("addresses");
        let frames: Arc<dyn Frames> = Arc::new(zone);
        Site { pool: Pool::new(&host::Mmap, frames).expect("memory") }
    }

    fn store(&self, bytes: &[u8]) -> Handle {
        self.pool.store(CPU, Room::Open, bytes, None).expect("memory")
    }

    fn free(&self, handle: Handle) {
        // SAFETY: the benchmarks free each object once, and do not read it afterwards.
        unsafe { self.pool.free(CPU, handle) }
    }
}

/// Stores an object among many others and frees the oldest.
#[divan::bench(args = LENGTHS)]
fn store_and_free(bencher: Bencher, length: usize) {
    let (site, bytes) = (Site::new(), vec![7; length]);
    let mut held: Vec<Handle> = (0..OBJECTS).map(|_| site.store(&bytes)).collect();
    let mut oldest = 0;
    bencher.bench_local(|| {
        site.free(std::mem::replace(&mut held[oldest], site.store(&bytes)));
        oldest = (oldest + 1) % OBJECTS;
    });
}

#[divan::bench(args = LENGTHS, sample_size = AT_ONCE)]
fn free(bencher: Bencher, length: usize) {
    let (site, bytes) = (Site::new(), vec![7; length]);
    bencher.with_inputs(|| site.store(&bytes)).bench_local_values(|handle| site.free(handle));
}

#[divan::bench(args = LENGTHS)]
fn read(bencher: Bencher, length: usize) {
    let (site, bytes) = (Site::new(), vec![7; length]);
    let held: Vec<Handle> = (0..OBJECTS).map(|_| site.store(&bytes)).collect();
    let (mut which, mut copy) = (0, vec![0; length]);
    bencher.bench_local(|| {
        which = (which + 1) % OBJECTS;
        // SAFETY: the object was stored with this length and is not freed.
        unsafe {
            site.pool.read(held[which], length, |object| {
                object.copy_to(&mut copy);
            });
        }
    });
    assert_eq!(copy, bytes);
}
