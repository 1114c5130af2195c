//! Prefetches a page before it is compressed.
//!
//! Each call asks for as many cache misses as a processor keeps in flight. After the second call
//! the processor's own prefetcher follows.

use core::ops::Range;

use units::Page;

const BEGINNING: Range<usize> = 0..10 * 64;
const SEQUEL: Range<usize> = BEGINNING.end..24 * 64;

/// Prefetches the beginning of a page that is to be stored.
#[inline]
pub fn prefetch_beginning(page: &Page) {
    sync::prefetch_bytes(page.as_ptr(), BEGINNING);
}

/// Prefetches the bytes after the beginning. Call it right before the page is compressed, when its
/// beginning was looked at and so is in the cache.
#[inline]
pub fn prefetch_sequel(page: &Page) {
    sync::prefetch_bytes(page.as_ptr(), SEQUEL);
}
