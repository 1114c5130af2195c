//! Once a connection is warm, requests take nothing from the heap.
//!
//! # Why unsafe
//! Only a global allocator can count what is allocated.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The test's own thread is not counted.
    static COUNTED: Cell<bool> = const { Cell::new(true) };
}

struct Counting;

fn count() {
    if COUNTED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTER: Counting = Counting;

fn round(client: &mut Client, style: Style) {
    for page in 0..16 {
        assert_eq!(client.write(0, page * PAGE, &[page as u8; 4096]), 0);
    }
    assert_eq!(client.command(0, TRIM, 3 * PAGE, 4096), 0);
    assert_eq!(client.command(NO_HOLE, WRITE_ZEROES, 5 * PAGE, 4096), 0);
    assert_eq!(client.command(0, FLUSH, 0, 0), 0);
    if style == Style::Simple {
        client.read(0, 16 * 4096).unwrap();
        assert_eq!(client.read(u64::MAX, 1), Err(EINVAL));
    } else {
        client.read_chunks(0, 0, 16 * 4096).unwrap();
        client.read_chunks(DF, 0, 16 * 4096).unwrap();
        // Errors with their messages as well.
        assert_eq!(client.read_chunks(0, u64::MAX, 1), Err(EINVAL));
        assert_eq!(client.status(0, 0, 16 * 4096).unwrap().len(), 6);
    }
    assert_eq!(client.write(0, u64::MAX, &[1; 4096]), ENOSPC);
}

#[test]
fn requests_allocate_nothing() {
    COUNTED.set(false);
    for style in [Style::Simple, Style::Allocation] {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        let mut client = Client::connected(plain(16 * 4096), style);
        round(&mut client, style);
        let warm = ALLOCATIONS.load(Ordering::SeqCst);
        assert!(warm > before, "the counter counts");
        for _ in 0..50 {
            round(&mut client, style);
        }
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), warm, "{style:?}");
    }
}
