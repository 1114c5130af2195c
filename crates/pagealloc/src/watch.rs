//! Tells a checker which memory must not be touched for now. In an ordinary build no checker runs,
//! and the calls compile to nothing.
//!
//! Frames and objects lie in memory that was mapped once, so a checker does not know by itself
//! which bytes are in use. Under `--cfg asan` AddressSanitizer is told which bytes are in use.
//! Under `--cfg shuttle` bytes are never seen half copied; there, poisoned bytes are overwritten
//! with rubbish, so that a late reader does not find the old contents.
//!
//! # Why unsafe
//! Calls the sanitizer in C, and writes rubbish to addresses.

use core::ptr::NonNull;

/// Whether a checker watches.
pub const WATCHED: bool = cfg!(any(asan, shuttle));

/// The value of poisoned bytes.
#[cfg(shuttle)]
const RUBBISH: u8 = 0x6b;

// SAFETY: these are functions of the sanitizer, as its header asan_interface.h declares them.
#[cfg(asan)]
unsafe extern "C" {
    fn __asan_poison_memory_region(start: *const core::ffi::c_void, bytes: usize);
    fn __asan_unpoison_memory_region(start: *const core::ffi::c_void, bytes: usize);
}

/// Marks `bytes` bytes from `start` on: no thread may touch them until they are unpoisoned.
///
/// # Safety
/// The bytes are readable and writable, and belong to the caller alone.
#[inline]
pub unsafe fn poison(start: NonNull<u8>, bytes: usize) {
    #[cfg(asan)]
    // SAFETY: the sanitizer marks its own shadow of these addresses.
    unsafe {
        __asan_poison_memory_region(start.as_ptr().cast(), bytes);
    }
    #[cfg(shuttle)]
    // SAFETY: as the caller promises.
    unsafe {
        start.as_ptr().write_bytes(RUBBISH, bytes);
    }
    let _ = (start, bytes);
}

/// Allows threads to touch the bytes again.
#[inline]
pub fn unpoison(start: NonNull<u8>, bytes: usize) {
    #[cfg(asan)]
    // SAFETY: the sanitizer marks its own shadow of these addresses.
    unsafe {
        __asan_unpoison_memory_region(start.as_ptr().cast(), bytes);
    }
    let _ = (start, bytes);
}
