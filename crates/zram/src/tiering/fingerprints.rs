//! Fingerprints of idle pages: where an equal page may be.
//!
//! A table of 4 bytes for each page of the device, all of which are used before long, in buckets of
//! a cache line. A word is the number of the page, plus one, and in the other bits a part of its
//! fingerprint; 0 is unused. It is a hint: a page may have changed since, another page may have
//! that part too, and a full bucket forgets a page for each new one. So the caller compares the
//! pages.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU32, Ordering};
use twox_hash::XxHash3_64;
use units::Page;

/// The fingerprint of a page (XXH3, 64 bits): equal pages have equal ones.
#[must_use]
pub fn fingerprint(page: &Page) -> u64 {
    XxHash3_64::oneshot(page)
}

const WAYS: usize = 16;
/// The most bits for the number of a page: of a device of a TiB. The other four tell pages of a
/// bucket apart.
const NUMBER_BITS: u32 = 28;

/// The table. One thread uses it at a time.
pub(crate) struct Fingerprints {
    words: LazyTable<AtomicU32>,
    buckets: u64,
    /// The bits of a word for the number of a page.
    number_bits: u32,
}

impl Fingerprints {
    /// A table for `pages` pages, of the first TiB of a device.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn new(
        provider: &dyn MemoryProvider,
        pages: usize,
    ) -> Result<Fingerprints, NoMemory> {
        let buckets = pages.div_ceil(WAYS).max(1);
        let words = LazyTable::new(provider, buckets * WAYS)?;
        let number_bits = (usize::BITS - pages.leading_zeros()).clamp(1, NUMBER_BITS);
        Ok(Fingerprints { words, buckets: buckets as u64, number_bits })
    }

    /// The number of pages that it is made for.
    pub(crate) fn pages(&self) -> usize {
        self.words.len()
    }

    /// Enters a page. Returns one that was entered and may be equal, if it is remembered: the
    /// caller's takes its place. A page that has no number in the table is not entered.
    pub(crate) fn swap(&self, fingerprint: u64, page: usize) -> Option<usize> {
        let number = u32::try_from(page).ok()?.checked_add(1)?;
        if number >> self.number_bits != 0 {
            return None;
        }
        // The high half chooses the bucket, so pages of a bucket differ in the low half.
        let bucket = (((fingerprint >> 32) * self.buckets) >> 32) as usize;
        let new = (fingerprint as u32) << self.number_bits | number;
        let part = |word: u32| word >> self.number_bits;
        let word = |way: usize| self.words.get(bucket * WAYS + way);
        // Relaxed: one thread uses the table.
        let held = |way: &usize| word(*way).load(Ordering::Relaxed);
        let found = (0..WAYS).find(|way| held(way) != 0 && part(held(way)) == part(new));
        let way = found.or_else(|| (0..WAYS).find(|way| held(way) == 0));
        let way = way.unwrap_or(page % WAYS);
        let old = word(way).swap(new, Ordering::Relaxed);
        found.map(|_| (old & ((1 << self.number_bits) - 1)) as usize - 1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use testkit::Rng;

    use super::*;

    fn table(pages: usize) -> Fingerprints {
        Fingerprints::new(&host::Mmap, pages).unwrap()
    }

    #[test]
    fn the_last_page_with_a_fingerprint_is_found() {
        let table = table(100);
        assert_eq!(table.swap(7 << 40 | 1, 3), None);
        assert_eq!(table.swap(7 << 40 | 2, 4), None, "another low half");
        assert_eq!(table.swap(7 << 40 | 1, 5), Some(3));
        assert_eq!(table.swap(7 << 40 | 1, 0), Some(5));
        assert_eq!(table.swap(7 << 40 | 1, 0), Some(0), "the page itself");
        for page in [127, u32::MAX as usize, usize::MAX] {
            assert_eq!(table.swap(0, page), None);
        }
        assert_eq!(table.swap(0, 9), None, "a page that has no number was not entered");
    }

    #[test]
    fn most_pages_are_remembered_when_all_are_entered() {
        const PAGES: usize = 10_000;
        let (table, mut rng) = (table(PAGES), Rng::new(1));
        let prints: Vec<u64> = (0..PAGES).map(|_| rng.next_u64()).collect();
        prints.iter().enumerate().for_each(|(page, print)| {
            assert_eq!(table.swap(*print, page), None);
        });
        let again = |page: usize| table.swap(prints[page], page) == Some(page);
        let found = (0..PAGES).rev().filter(|page| again(*page)).count();
        assert!(found > PAGES * 7 / 10, "{found} of {PAGES}");
    }

    #[test]
    fn a_full_bucket_takes_new_pages() {
        let table = table(WAYS);
        for page in 0..20 {
            assert_eq!(table.swap(page << 8, page as usize), None);
            assert_eq!(table.swap(page << 8, page as usize), Some(page as usize));
        }
    }
}
