//! Same-filled pages: pages that repeat one eight-byte pattern.

use units::{PAGE_SIZE, Page};

/// Bytes that are checked before the whole page: they rule out most pages that are not filled.
const BEGINNING: usize = 128;

/// The eight-byte pattern of a page; `None` if the page is not same-filled.
#[inline]
#[must_use]
pub fn same_filled(page: &Page) -> Option<u64> {
    let (words, _) = page.as_chunks::<8>();
    let pattern = u64::from_ne_bytes(words[0]);
    let mut different = 0;
    for word in &words[..BEGINNING / 8] {
        different |= u64::from_ne_bytes(*word) ^ pattern;
    }
    // A page that equals itself shifted by eight bytes repeats its first eight bytes. The slice
    // comparison is as wide as the processor allows.
    (different == 0 && page[..PAGE_SIZE - 8] == page[8..]).then_some(pattern)
}

/// Fills a page with an eight-byte pattern.
#[inline]
pub fn fill(page: &mut Page, pattern: u64) {
    let bytes = pattern.to_ne_bytes();
    if bytes == [bytes[0]; 8] {
        page.fill(bytes[0]);
        return;
    }
    let (words, _) = page.as_chunks_mut::<8>();
    words[..8].fill(bytes);
    let mut filled = 64;
    while filled < PAGE_SIZE {
        let (done, rest) = page.split_at_mut(filled);
        rest[..filled].copy_from_slice(done);
        filled *= 2;
    }
}
