//! Asking the processor for a page before it is compressed.
//!
//! Each time it is as many misses as a processor keeps in flight. After the second its own
//! prefetcher follows.

use core::ops::Range;

use units::Page;

const BEGINNING: Range<usize> = 0..10 * 64;
const SEQUEL: Range<usize> = BEGINNING.end..24 * 64;

/// Asks for the beginning of a page that is to be stored.
#[inline]
pub fn prefetch_beginning(page: &Page) {
    sync::prefetch_bytes(page.as_ptr(), BEGINNING);
}

/// Asks for what follows. Call it when the beginning of the page was looked at, and so is in the
/// cache, right before the page is compressed.
#[inline]
pub fn prefetch_sequel(page: &Page) {
    sync::prefetch_bytes(page.as_ptr(), SEQUEL);
}
