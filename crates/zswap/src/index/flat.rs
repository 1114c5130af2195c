//! An index that is a table: a word for each page of the area.
//!
//! A call is one operation on one word, so it takes no lock and needs no memory of its own. The
//! word of a page is the commit point of all that happens to the page, also for another process
//! that finds the table: see `recovery`.
//!
//! # Why unsafe
//! The engine frees the entries that an index returns.

use core::ops::Range;

use pagealloc::{LazyTable, MemoryProvider, NoMemory, Touched};
use sync::PerCpuCounters;
use sync::atomic::{AtomicU64, Ordering};
use units::Cpu;

use super::contract::Index;
use crate::key::Word;

/// Bytes of a word.
const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// A table with the word of each page, 0 for none.
pub struct Flat {
    words: LazyTable<AtomicU64>,
    /// A bit for each 512 words, set before one of them is written.
    touched: Touched,
    entries: PerCpuCounters<1>,
    /// All of the table has memory.
    is_provided: bool,
}

impl Flat {
    /// The name of the index.
    pub const NAME: &'static str = "flat";

    fn word(&self, offset: u64) -> &AtomicU64 {
        self.words.get(offset as usize)
    }

    fn count_one(&self, cpu: Cpu, sign: i64) {
        self.entries.add(cpu, 0, sign);
    }

    /// The offsets of a range that may have a word.
    pub(crate) fn touched(&self, offsets: Range<u64>) -> impl Iterator<Item = u64> {
        let end = offsets.end.min(self.words.len() as u64) as usize;
        let mut from = offsets.start as usize;
        core::iter::from_fn(move || {
            let at = if from < end { self.touched.next(from, end) } else { end };
            from = at + 1;
            (at < end).then_some(at as u64)
        })
    }

    /// Whether a page has a word. It touches no memory that was never written.
    pub(crate) fn has(&self, offset: u64) -> bool {
        self.touched.is_marked(offset as usize) && self.word(offset).load(Ordering::Relaxed) != 0
    }

    /// Replaces the word that another process left by what `judge` makes of it, and counts it.
    /// Nobody else uses the page.
    pub(crate) fn recover(
        &self,
        cpu: Cpu,
        offset: u64,
        judge: impl FnOnce(Option<Word>) -> Option<Word>,
    ) {
        let place = self.word(offset);
        let was = place.load(Ordering::Relaxed);
        let right = judge(Word::from_raw(was)).map_or(0, Word::get);
        if right != 0 {
            self.touched.mark(offset as usize);
            self.count_one(cpu, 1);
        }
        if right != was {
            place.store(right, Ordering::Relaxed);
        }
    }
}

// SAFETY: a word is in one place, and leaves it by the one operation that returns it. A lookup
// reads the place itself.
unsafe impl Index for Flat {
    fn make(
        provider: &dyn MemoryProvider,
        pages: u64,
        _: u32,
        cpus: usize,
    ) -> Result<Flat, NoMemory> {
        let pages = usize::try_from(pages).map_err(|_| NoMemory { bytes: usize::MAX })?;
        Ok(Flat {
            words: LazyTable::provided(provider, pages)?,
            touched: Touched::new(provider, pages)?,
            entries: PerCpuCounters::new(cpus),
            is_provided: provider.is_ahead(),
        })
    }

    #[inline]
    fn get(&self, _: Cpu, offset: u64) -> Option<Word> {
        // Acquire pairs with the Release in `insert`: the entry was written. It also pairs with
        // those of `remove` and `remove_if`: the device has the page, if it left for there.
        Word::from_raw(self.word(offset).load(Ordering::Acquire))
    }

    #[inline]
    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory> {
        self.touched.mark(offset as usize);
        // Release pairs with the Acquire in `get`, Acquire with the Release of who wrote the entry
        // that is displaced.
        let old = Word::from_raw(self.word(offset).swap(word.get(), Ordering::AcqRel));
        if old.is_none() {
            self.count_one(cpu, 1);
        }
        Ok(old)
    }

    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        let place = self.word(offset);
        // Acquire pairs with the Release of who removed the word.
        if place.load(Ordering::Acquire) == 0 {
            return None;
        }
        // Acquire and Release as in `insert`.
        let word = Word::from_raw(place.swap(0, Ordering::AcqRel));
        if word.is_some() {
            self.count_one(cpu, -1);
        }
        word
    }

    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool {
        let place = self.word(offset);
        // Release and Acquire pair as in `insert`; the failed look's Acquire pairs with the Release
        // of who removed the word.
        let done = place.compare_exchange(word.get(), 0, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            self.count_one(cpu, -1);
        }
        done.is_ok()
    }

    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word)) {
        for at in self.touched(offsets) {
            if let Some(word) = self.remove(cpu, at) {
                visit(at, word);
            }
        }
    }

    fn provide(&self, _: u32, _: u32) -> bool {
        true
    }

    fn count(&self) -> u64 {
        self.entries.sum(0)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn table_bytes(&self) -> u64 {
        let words = match self.is_provided {
            true => self.words.len() as u64,
            false => self.touched.slots(self.words.len()),
        };
        words * WORD_BYTES
    }

    fn validate(&self) {
        let there = self.touched(0..u64::MAX).filter(|at| self.get(Cpu(0), *at).is_some());
        let entries = there.count() as u64;
        assert_eq!(self.count(), entries, "entries are counted that are not there, or not counted");
    }
}
