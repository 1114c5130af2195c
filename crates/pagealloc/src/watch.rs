//! Memory that nobody may touch for now, told to those who watch. In an ordinary build nobody
//! does, and nothing here is left.
//!
//! Frames and objects lie in memory that was mapped once and for all, of which a checker knows
//! nothing by itself. Under `--cfg asan` AddressSanitizer is told which bytes are whose; under
//! `--cfg shuttle`, where bytes are never seen half copied, what is shut is filled with rubbish, so
//! that whoever reads on does not find what was there.
//!
//! # Why unsafe
//! The sanitizer is spoken to in C, and rubbish is written to addresses.

use core::ptr::NonNull;

/// Whether anybody watches.
pub const WATCHED: bool = cfg!(any(asan, shuttle));

/// Bytes that were shut.
#[cfg(shuttle)]
const RUBBISH: u8 = 0x6b;

// SAFETY: these are the sanitizer's, as its header asan_interface.h declares them.
#[cfg(asan)]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const core::ffi::c_void, bytes: usize);
    fn __asan_unpoison_memory_region(start: *const core::ffi::c_void, bytes: usize);
}

/// Nobody may touch `bytes` bytes from `start` on until they are opened.
///
/// # Safety
/// They are readable and writable, and the caller's alone.
#[inline]
pub unsafe fn poison(start: NonNull<u8>, bytes: usize) {
    #[cfg(asan)]
    // SAFETY: the sanitizer marks its own shadow of these addresses.
    unsafe {
        __asan_poison_memory_region(start.as_ptr().cast(), bytes);
    }
    #[cfg(shuttle)]
    // SAFETY: the caller's promise.
    unsafe {
        start.as_ptr().write_bytes(RUBBISH, bytes);
    }
    let _ = (start, bytes);
}

/// They may be touched again.
#[inline]
pub fn unpoison(start: NonNull<u8>, bytes: usize) {
    #[cfg(asan)]
    // SAFETY: the sanitizer marks its own shadow of these addresses.
    unsafe {
        __asan_unpoison_memory_region(start.as_ptr().cast(), bytes);
    }
    let _ = (start, bytes);
}
