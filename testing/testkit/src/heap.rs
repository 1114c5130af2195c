//! Calls of the heap, counted: what is on the way of a page makes none.
//!
//! # Why unsafe
//! Only a global allocator sees them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The system's allocator, which counts calls. A test program makes it its own:
///
/// ```text
/// #[global_allocator]
/// static HEAP: testkit::CountingHeap = testkit::CountingHeap;
/// ```
///
/// It sees what Rust asks for; what C code asks of `malloc` by itself is not seen.
#[derive(Clone, Copy, Debug)]
pub struct CountingHeap;

/// Calls of threads that are counted.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Whether threads that said nothing are counted.
static EVERYBODY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread said.
    static COUNTED: Cell<Option<bool>> = const { Cell::new(None) };
    static OWN_CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    OWN_CALLS.set(OWN_CALLS.get() + 1);
    if COUNTED.get().unwrap_or_else(|| EVERYBODY.load(Ordering::Relaxed)) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for CountingHeap {
    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(old, layout, bytes) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] has it.
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(old, layout) }
    }
}

impl CountingHeap {
    /// How often `work` called the heap on this thread.
    ///
    /// # Panics
    /// When this is not the allocator of the program: then it would count nothing.
    pub fn calls_of(work: impl FnOnce()) -> u64 {
        let before = OWN_CALLS.get();
        drop(std::hint::black_box(Box::new(1)));
        assert_eq!(OWN_CALLS.get(), before + 2, "the program has another allocator");
        let before = OWN_CALLS.get();
        work();
        OWN_CALLS.get() - before
    }

    /// Whether [`calls`](CountingHeap::calls) counts this thread from now on.
    pub fn count_this_thread(counted: bool) {
        COUNTED.set(Some(counted));
    }

    /// From now on [`calls`](CountingHeap::calls) counts every thread that has not said whether it
    /// is counted.
    pub fn count_others() {
        EVERYBODY.store(true, Ordering::Relaxed);
    }

    /// How often threads that are counted called the heap. Any thread may ask at any time.
    #[must_use]
    pub fn calls() -> u64 {
        CALLS.load(Ordering::Relaxed)
    }
}
