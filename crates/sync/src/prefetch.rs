//! A hint to the processor's cache.
//!
//! # Why unsafe
//! The instruction is only offered as an unsafe intrinsic.

use core::ops::Range;

/// Bytes of a line of most processors' caches.
const LINE: usize = 64;

/// Asks the processor for bytes of what begins at `start`, which need not be valid. No more than
/// about ten lines are fetched at a time; who asks for more at once may have to wait.
#[inline]
pub fn prefetch_bytes(start: *const u8, bytes: Range<usize>) {
    for at in bytes.step_by(LINE) {
        prefetch(start.wrapping_add(at));
    }
}

/// Asks the processor for the line at an address, which need not be valid.
#[inline]
pub fn prefetch<T>(address: *const T) {
    // What is asked for now is read or written for a while: others may come between.
    #[cfg(shuttle)]
    crate::atomic::point();
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Writes a byte with the value that it has, so that its page is in memory. Whatever others write
/// to it meanwhile stays.
///
/// # Safety
/// The byte may be read and written, and whoever uses it meanwhile does so by atomics.
pub unsafe fn touch(byte: *mut u8) {
    // Not those of a model: it knows no pages.
    // SAFETY: as the caller promises; a byte is always aligned.
    let byte = unsafe { core::sync::atomic::AtomicU8::from_ptr(byte) };
    byte.fetch_or(0, core::sync::atomic::Ordering::Relaxed);
}
