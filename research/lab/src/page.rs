//! Bytes as pages.

use units::{PAGE_SIZE, Page};

/// The pages of `bytes`; what is left over at the end is not one.
pub fn pages(bytes: &[u8]) -> impl ExactSizeIterator<Item = &Page> {
    bytes.chunks_exact(PAGE_SIZE).map(|chunk| chunk.try_into().expect("a chunk is a page long"))
}

/// Page `index` of `bytes`. Panics if there is none.
#[inline]
#[must_use]
pub fn page(bytes: &[u8], index: usize) -> &Page {
    bytes[index * PAGE_SIZE..][..PAGE_SIZE].try_into().expect("a slice is a page long")
}

/// Page `index` of `bytes`, to be written. Panics if there is none.
#[inline]
#[must_use]
pub fn page_mut(bytes: &mut [u8], index: usize) -> &mut Page {
    (&mut bytes[index * PAGE_SIZE..][..PAGE_SIZE]).try_into().expect("a slice is a page long")
}
