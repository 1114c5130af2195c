//! The data path allocates nothing from the heap.

use host::Mmap;
use pagealloc::ZoneOptions;
use testkit::CountingHeap;
use units::{Cpu, Frame};

use crate::design::Design;
use crate::tested::DESIGNS;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

#[test]
fn lending_and_taking_back_touch_no_heap() {
    DESIGNS.iter().for_each(touches_no_heap);
}

fn touches_no_heap(design: &Design) {
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(3, 20_000) };
    let zone = (design.make)(&Mmap, options);
    let mut held: Vec<(Frame, u8)> = Vec::with_capacity(30_000);
    let calls = CountingHeap::calls_of(|| {
        for round in 0..3u32 {
            // Until nothing is left: growth, collapsing and the search through all caches included.
            for n in 0.. {
                let order = if n % 50 == 0 { zone.largest().min(round as u8 * 4) } else { 0 };
                let Some(frame) = zone.lend(Cpu(n), order) else { break };
                held.push((frame, order));
            }
            for (n, (frame, order)) in held.drain(..).enumerate() {
                zone.take_back(Cpu(n as u32), frame, order);
            }
        }
        zone.drain();
        std::hint::black_box(zone.stats());
    });
    assert!(zone.stats().returned_blocks > 0, "{}", design.name);
    assert_eq!(calls, 0, "{}", design.name);
    zone.validate();
}
