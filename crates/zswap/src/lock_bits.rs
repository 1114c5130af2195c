//! The lock bits of pages, and their order with the index.
//!
//! A thread that writes a page back locks it and then looks in the index, whose lookups take no
//! lock. A thread that invalidates a page removes it from the index and then looks at the lock bit.
//! Both have a full barrier between the two steps. So one of them sees the other: the page is not
//! found any more, or it is seen to be locked. Without the barriers each could look before the
//! other's change arrives (store buffering), and the page would be written after the invalidation.

use sync::atomic::{AtomicU64, Ordering, barrier_after_rmw, fence};

/// Sets the lock bit `bit` if it is clear; returns whether it was. A lookup in the index that
/// follows finds no page that was removed before [`removed`] returned in a thread that then saw the
/// bit clear.
#[inline]
pub fn try_lock(word: &AtomicU64, bit: u64) -> bool {
    try_lock_all(word, bit) == bit
}

/// Sets those of the lock bits `bits` that are clear, as [`try_lock`] does, and returns them.
#[inline]
pub fn try_lock_all(word: &AtomicU64, bits: u64) -> u64 {
    // Acquire pairs with the Release in `unlock`: the work of the last holders is done.
    let was = word.fetch_or(bits, Ordering::Acquire);
    // Pairs with the fence in `removed`.
    barrier_after_rmw();
    bits & !was
}

/// Clears the lock bit `bit`. The calling thread set it.
#[inline]
pub fn unlock(word: &AtomicU64, bit: u64) {
    // Release pairs with the Acquire in `try_lock` and `locked`.
    word.fetch_and(!bit, Ordering::Release);
}

/// The bits that are set. A thread that removed pages from the index calls [`removed`] first.
#[inline]
pub fn locked(word: &AtomicU64) -> u64 {
    // Acquire pairs with the Release in `unlock`.
    word.load(Ordering::Acquire)
}

/// Orders the removal of pages from the index before the looks at their lock bits that follow.
#[inline]
pub fn removed() {
    // Pairs with the barrier in `try_lock`: a thread whose bit is not seen does not find the page.
    fence(Ordering::SeqCst);
}
