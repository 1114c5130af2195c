//! A counter of every call to the heap, from Rust or from C: a program's symbols go before the C
//! library's.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use units::Cpu;
use zcomp::Streams;

/// A page.
type Page = [u8; 4096];

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

/// Calls to the allocator by this thread while `work` ran.
pub fn calls_during<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = CALLS.get();
    let result = work();
    (CALLS.get() - before, result)
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(items: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_calloc(items, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_realloc(old, size) }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_memalign(alignment, size) }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: passes on what the caller answers for.
    unsafe { __libc_memalign(alignment, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    const ENOMEM: c_int = 12;
    count();
    // SAFETY: passes on what the caller answers for.
    let memory = unsafe { __libc_memalign(alignment, size) };
    if memory.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller gave a place for the result.
    unsafe { to.write(memory) };
    0
}

/// Everything a stream is for, right and wrong, on one page.
pub fn use_stream(streams: &impl Streams, page: &Page, noise: &Page, kept: &mut [u8]) {
    let mut back = [0; 4096];
    for cpu in 0..3 {
        let stream = &mut *streams.get(Cpu(cpu));
        let length = stream.context.compress(page, &mut stream.output[..]).unwrap();
        stream.context.decompress(&stream.output[..length], &mut back).unwrap();
        assert!(back == *page);
        assert_eq!(stream.context.compress(page, &mut kept[..length]), Some(length));
        assert_eq!(stream.context.compress(page, &mut kept[..length - 1]), None);
        assert!(stream.context.decompress(&stream.output[..length - 1], &mut back).is_err());
        for (n, byte) in noise.iter().enumerate().take(64) {
            let at = n * length / 64;
            stream.output[at] ^= byte;
            let _ = stream.context.decompress(&stream.output[..length], &mut back);
            stream.output[at] ^= byte;
        }
        let _ = stream.context.decompress(noise, &mut back);
    }
}
