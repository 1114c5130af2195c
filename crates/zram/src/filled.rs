//! Pages that are the same eight bytes over and over.

use units::Page;

/// Bytes looked at before the next decision: two full-width vectors of most processors.
const STRIDE: usize = 128;

/// The eight bytes a page is filled with, if it is. Most pages that are not are known by their
/// first 128 bytes.
#[inline]
#[must_use]
pub(crate) fn same_filled(page: &Page) -> Option<u64> {
    let (words, _) = page.as_chunks::<8>();
    let pattern = u64::from_ne_bytes(words[0]);
    let (strides, _) = words.as_chunks::<{ STRIDE / 8 }>();
    for stride in strides {
        let mut different = 0;
        for word in stride {
            different |= u64::from_ne_bytes(*word) ^ pattern;
        }
        if different != 0 {
            return None;
        }
    }
    Some(pattern)
}

/// Fills a page with a pattern.
#[inline]
pub(crate) fn fill(page: &mut Page, pattern: u64) {
    if pattern == 0 {
        page.fill(0);
        return;
    }
    let (words, _) = page.as_chunks_mut::<8>();
    words.fill(pattern.to_ne_bytes());
}
