//! Fingerprints of idle pages: where an equal page may be.
//!
//! A table of 8 bytes for each page of the device, all of which are used before long, in buckets of
//! a cache line. A word is 32 bits of a fingerprint and the number of the page, plus one; 0 is
//! unused. It is a hint: a page may have changed since, and a full bucket forgets a page for each
//! new one. So the caller compares the pages.

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use twox_hash::XxHash3_64;
use units::Page;

/// The fingerprint of a page (XXH3, 64 bits): equal pages have equal ones.
#[must_use]
pub fn fingerprint(page: &Page) -> u64 {
    XxHash3_64::oneshot(page)
}

const WAYS: usize = 8;

/// The table. One thread uses it at a time.
pub(crate) struct Fingerprints {
    words: LazyTable<AtomicU64>,
    buckets: u64,
}

impl Fingerprints {
    /// A table for so many pages. It works for more, and forgets more of them.
    ///
    /// # Errors
    /// [`NoMemory`] when address space is out.
    pub(crate) fn new(
        provider: &dyn MemoryProvider,
        pages: usize,
    ) -> Result<Fingerprints, NoMemory> {
        let buckets = pages.div_ceil(WAYS).max(1);
        let words = LazyTable::new(provider, buckets * WAYS)?;
        Ok(Fingerprints { words, buckets: buckets as u64 })
    }

    /// The number of pages that it is made for.
    pub(crate) fn pages(&self) -> usize {
        self.words.len()
    }

    /// Enters a page. Returns one that was entered with the same fingerprint, if it is remembered:
    /// the caller's takes its place. A page above 2³² − 2 is not entered.
    pub(crate) fn swap(&self, fingerprint: u64, page: usize) -> Option<usize> {
        let number = u32::try_from(page).ok()?.checked_add(1)?;
        // The high half chooses the bucket, so pages of a bucket differ in the low half.
        let bucket = (((fingerprint >> 32) * self.buckets) >> 32) as usize;
        let new = fingerprint << 32 | u64::from(number);
        let word = |way: usize| self.words.get(bucket * WAYS + way);
        // Relaxed: one thread uses the table.
        let held = |way: &usize| word(*way).load(Ordering::Relaxed);
        let same = |way: &usize| held(way) != 0 && held(way) >> 32 == new >> 32;
        let found = (0..WAYS).find(same);
        let way = found.or_else(|| (0..WAYS).find(|way| held(way) == 0));
        let way = way.unwrap_or(page % WAYS);
        let old = word(way).swap(new, Ordering::Relaxed);
        found.map(|_| old as u32 as usize - 1)
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
        assert_eq!(table.swap(0, u32::MAX as usize), None);
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
        let table = table(1);
        for page in 0..20 {
            assert_eq!(table.swap(page << 8, page as usize), None);
            assert_eq!(table.swap(page << 8, page as usize), Some(page as usize));
        }
    }
}
