//! Numbers of entries of a table: the lowest that is free is taken first, so that a table of which
//! little is used has it at its beginning. Number 0 is never free.

use alloc::vec::Vec;
use core::ops::Range;

/// Numbers in a word.
const WORD: usize = u64::BITS as usize;

/// The numbers below some number, each free or taken.
pub(crate) struct Numbers {
    /// A bit for each number, set if it is taken. The last word is not 0.
    taken: Vec<u64>,
    /// All words before this one are full.
    full: usize,
    most: usize,
    /// Entries of a page, a multiple of the numbers in a word.
    in_page: usize,
    /// Pages with a number that is taken.
    pages: u64,
}

impl Numbers {
    /// Numbers below `most` for a table that has `in_page` entries in a page.
    pub(crate) fn new(most: usize, in_page: usize) -> Numbers {
        debug_assert!(in_page.is_multiple_of(WORD));
        Numbers { taken: [1].into(), full: 0, most, in_page, pages: 1 }
    }

    /// One more than the highest number that is taken.
    pub(crate) fn end(&self) -> u32 {
        let last = self.taken.last().map_or(0, |last| last.leading_zeros());
        (self.taken.len() * WORD) as u32 - last
    }

    /// Pages with a number that is taken.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Takes the lowest number that is free; `None` if there is none.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let words = &self.taken[self.full..];
        self.full += words.iter().take_while(|word| **word == u64::MAX).count();
        let free = self.taken.get(self.full).map_or(0, |word| word.trailing_ones());
        let number = (self.full * WORD) as u32 + free;
        self.claim(number).then_some(number)
    }

    /// Takes a number. Returns whether it was there and free.
    pub(crate) fn claim(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / WORD, 1 << (number as usize % WORD));
        if number as usize >= self.most {
            return false;
        }
        if word >= self.taken.len() {
            self.taken.resize(word + 1, 0);
        }
        if self.taken[word] & bit != 0 {
            return false;
        }
        self.pages += u64::from(self.is_unused(self.page_of(number)));
        self.taken[word] |= bit;
        true
    }

    /// Gives a number back. Returns the numbers of its page if none of them is taken any more.
    pub(crate) fn give_back(&mut self, number: u32) -> Option<Range<usize>> {
        let word = number as usize / WORD;
        self.taken[word] &= !(1 << (number as usize % WORD));
        self.full = self.full.min(word);
        let page = self.page_of(number);
        let is_unused = self.is_unused(page.clone());
        self.pages -= u64::from(is_unused);
        while self.taken.last() == Some(&0) {
            self.taken.pop();
        }
        is_unused.then_some(page)
    }

    /// The numbers of the page of a number.
    fn page_of(&self, number: u32) -> Range<usize> {
        let first = number as usize / self.in_page * self.in_page;
        first..first + self.in_page
    }

    fn is_unused(&self, page: Range<usize>) -> bool {
        let end = (page.end / WORD).min(self.taken.len());
        let words = self.taken.get(page.start / WORD..end).unwrap_or_default();
        words.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testkit::Rng;

    use super::*;

    #[test]
    fn numbers_are_those_of_a_set() {
        const MOST: u32 = 1000;
        let mut rng = Rng::new(testkit::seed("numbers_are_those_of_a_set"));
        let (mut numbers, mut set) = (Numbers::new(MOST as usize, 128), BTreeSet::from([0]));
        for step in 0..40_000 {
            // It fills up, and then gets empty.
            if rng.below(100) < if step / 8000 % 2 == 0 { 70 } else { 30 } {
                let free = (0..MOST).find(|number| !set.contains(number));
                assert_eq!(numbers.take(), free);
                set.extend(free);
            } else {
                let taken: Vec<u32> = set.iter().copied().filter(|number| *number > 0).collect();
                let Some(number) = taken.get(rng.below(taken.len().max(1) as u64) as usize) else {
                    continue;
                };
                set.remove(number);
                let page = (number / 128 * 128) as usize..(number / 128 * 128 + 128) as usize;
                let is_unused = set.range(page.start as u32..page.end as u32).next().is_none();
                assert_eq!(numbers.give_back(*number), is_unused.then_some(page));
            }
            let pages: BTreeSet<u32> = set.iter().map(|number| number / 128).collect();
            assert_eq!(numbers.pages(), pages.len() as u64);
            assert_eq!(Some(numbers.end() - 1), set.last().copied());
        }
        assert!(!numbers.claim(MOST) && !numbers.claim(0));
    }
}
