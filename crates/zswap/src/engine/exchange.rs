//! Another object takes the place of the object of an entry: the commit of compaction, of
//! recompression and of packing.
//!
//! The contents of an entry never change while it lives, so any object with these contents may
//! stand in it. The thread reads `retired` meanwhile, so the entry is kept, and its object with it.
//! The old place is retired as an entry is: readers may have found it.

use sync::Reader;
use units::Cpu;

use super::Zswap;
use super::frees::leaving;
use crate::Word;
use crate::entry::Content;

/// What an entry had in the pool before, and what after.
#[derive(Clone, Copy)]
pub(super) struct Exchanged {
    pub(super) old: Content,
    pub(super) new: Content,
}

impl Zswap {
    /// The word of an entry, if an index names it now. The calling thread reads `retired`, which
    /// keeps such an entry. Any other may be unused, or about to be freed.
    pub(super) fn named(&self, reader: &Reader<'_>, cpu: Cpu, number: u32) -> Option<Word> {
        let (word, key) = (self.entries.word(number)?, self.entries.key(number));
        let area = self.area_of(reader, key)?;
        (area.index.get(cpu, key.offset) == Some(word)).then_some(word)
    }

    /// Lets an entry name another object, if an index names the entry, as a word that `make` gets.
    /// `make` makes the other one of what the entry has now, and may decline. The calling thread
    /// reads `retired`, and calls [`Zswap::retire_old`] when it does not any more.
    pub(super) fn exchange(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        number: u32,
        make: impl FnOnce(Word, Content) -> Option<Content>,
    ) -> Option<Exchanged> {
        let word = self.named(reader, cpu, number)?;
        let old = self.entries.content(number);
        let new = make(word, old)?;
        // This is the commit.
        if !self.entries.replace(number, old, new) {
            self.free(cpu, new);
            return None;
        }
        Some(Exchanged { old, new })
    }

    /// Frees what an entry had before, when no reader can hold it. The calling thread reads no
    /// entries.
    pub(super) fn retire_old(&self, cpu: Cpu, old: Content) {
        if let Some(word) = leaving(old) {
            self.retired.retire(cpu, word, |word| self.release(cpu, word));
        }
    }
}
