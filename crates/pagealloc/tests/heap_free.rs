//! The data path allocates nothing from the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[path = "suite/designs.rs"]
mod designs;

use designs::{DESIGNS, Design};
use host::Mmap;
use pagealloc::ZoneOptions;
use units::{Cpu, Frame, Order};

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
    static TOUCHED: Cell<u32> = const { Cell::new(0) };
}

struct Watched;

fn touch() {
    if FORBIDDEN.get() {
        TOUCHED.set(TOUCHED.get() + 1);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        touch();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        touch();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Watched = Watched;

/// How often `work` touched the heap.
fn heap_calls(work: impl FnOnce()) -> u32 {
    TOUCHED.set(0);
    FORBIDDEN.set(true);
    work();
    FORBIDDEN.set(false);
    TOUCHED.get()
}

#[test]
fn lending_and_taking_back_touch_no_heap() {
    let caught = heap_calls(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(caught, 2, "the watch must be able to see something");
    DESIGNS.iter().for_each(touches_no_heap);
}

fn touches_no_heap(design: &Design) {
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(3, 20_000) };
    let zone = (design.make)(&Mmap, options);
    let mut held: Vec<(Frame, Order)> = Vec::with_capacity(30_000);
    let calls = heap_calls(|| {
        for round in 0..3u32 {
            // Until nothing is left: growth, collapsing and the search through all caches included.
            for n in 0.. {
                let order = if n % 50 == 0 { round as u8 * 4 } else { 0 };
                let order = Order::new(order).unwrap();
                let Some(frame) = zone.alloc(Cpu(n), order) else { break };
                held.push((frame, order));
            }
            for (n, (frame, order)) in held.drain(..).enumerate() {
                zone.free(Cpu(n as u32), frame, order);
            }
        }
        zone.drain();
        std::hint::black_box(zone.stats());
    });
    assert!(zone.stats().returned_blocks > 0, "{}", design.name);
    assert_eq!(calls, 0, "{}", design.name);
    zone.validate();
}
