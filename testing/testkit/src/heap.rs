//! A counter of heap calls. The path of a page must make none.
//!
//! # Why unsafe
//! Only a global allocator sees the calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The system's allocator with a counter of calls. A test program installs it:
///
/// ```text
/// #[global_allocator]
/// static HEAP: testkit::CountingHeap = testkit::CountingHeap;
/// ```
///
/// It counts the calls from Rust. It does not see the calls of `malloc` from C code.
#[derive(Clone, Copy, Debug)]
pub struct CountingHeap;

/// The calls of counted threads.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Whether threads without a choice of their own are counted.
static EVERYBODY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The choice of this thread.
    static COUNTED: Cell<Option<bool>> = const { Cell::new(None) };
    static OWN_CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    OWN_CALLS.set(OWN_CALLS.get() + 1);
    if COUNTED.get().unwrap_or_else(|| EVERYBODY.load(Ordering::Relaxed)) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for CountingHeap {
    /// # Safety
    /// As [`GlobalAlloc`] demands.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of [`GlobalAlloc`].
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] demands.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of [`GlobalAlloc`].
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] demands.
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of [`GlobalAlloc`].
        unsafe { System.realloc(old, layout, bytes) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] demands.
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the contract of [`GlobalAlloc`].
        unsafe { System.dealloc(old, layout) }
    }
}

impl CountingHeap {
    /// Runs `work` and returns its number of heap calls on this thread.
    ///
    /// # Panics
    /// When this is not the program's allocator, because it would then count nothing.
    pub fn calls_of(work: impl FnOnce()) -> u64 {
        let before = OWN_CALLS.get();
        drop(std::hint::black_box(Box::new(1)));
        assert_eq!(OWN_CALLS.get(), before + 2, "the program has another allocator");
        let before = OWN_CALLS.get();
        work();
        OWN_CALLS.get() - before
    }

    /// Sets whether [`calls`](CountingHeap::calls) counts this thread from now on.
    pub fn count_this_thread(counted: bool) {
        COUNTED.set(Some(counted));
    }

    /// Makes [`calls`](CountingHeap::calls) count every thread that has not called
    /// [`count_this_thread`](CountingHeap::count_this_thread), from now on.
    pub fn count_others() {
        EVERYBODY.store(true, Ordering::Relaxed);
    }

    /// The number of heap calls of counted threads. Any thread may call this at any time.
    #[must_use]
    pub fn calls() -> u64 {
        CALLS.load(Ordering::Relaxed)
    }
}
