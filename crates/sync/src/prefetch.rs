//! Prefetch: hints to the processor's cache.
//!
//! # Why unsafe
//! The instruction exists only as an unsafe intrinsic, or in assembly.

use core::ops::Range;

/// The size of a cache line on most processors, in bytes.
const LINE: usize = 64;

/// Prefetches the bytes `bytes` from `start` on. The address need not be valid. A processor fetches
/// about ten lines at a time; a call for more may have to wait.
#[inline]
pub fn prefetch_bytes(start: *const u8, bytes: Range<usize>) {
    for at in bytes.step_by(LINE) {
        prefetch(start.wrapping_add(at));
    }
}

/// Prefetches the cache line of an address, which need not be valid.
#[inline]
pub fn prefetch<T>(address: *const T) {
    // Prefetched data is read or written a little later: other threads may run in between.
    #[cfg(shuttle)]
    crate::atomic::point();
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless, and SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch of any address is harmless: it reads no memory that the program sees,
    // changes no register or flag, and does not fault.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(miri)))))]
    let _ = address;
}

/// Writes a byte with its present value, so that its page is in memory. A concurrent write by
/// another thread stays.
///
/// # Safety
/// The byte may be read and written. Other threads use it meanwhile only by atomics.
pub unsafe fn touch(byte: *mut u8) {
    // Not the atomics of a model: a model has no pages.
    // SAFETY: as the caller promises; a byte is always aligned.
    let byte = unsafe { core::sync::atomic::AtomicU8::from_ptr(byte) };
    byte.fetch_or(0, core::sync::atomic::Ordering::Relaxed);
}
