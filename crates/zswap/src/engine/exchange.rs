//! Another object takes the place of the object of an entry: the commit of compaction and of
//! recompression.
//!
//! The contents of an entry never change while it lives, so any object with these contents may
//! stand in it. The thread reads `retired` meanwhile, so the entry is kept, and its object with it.
//! The old place is retired as an entry is: readers may have found it.

use objects::Object;
use sync::Reader;
use units::Cpu;

use super::Zswap;
use super::frees::leaving;
use crate::Word;
use crate::entry::Content;

/// The objects of an entry before and after.
#[derive(Clone, Copy)]
pub(super) struct Exchanged {
    pub(super) old: Object,
    pub(super) new: Object,
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
    /// `make` makes the other object of the present one, and may decline. The calling thread reads
    /// `retired`, and calls [`Zswap::retire_place`] with the old object when it does not any more.
    pub(super) fn exchange(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        number: u32,
        make: impl FnOnce(Word, Object) -> Option<Object>,
    ) -> Option<Exchanged> {
        let word = self.named(reader, cpu, number)?;
        let Content::Stored(old) = self.entries.content(number) else { return None };
        let new = make(word, old)?;
        // This is the commit.
        if !self.entries.replace_object(number, old, new) {
            self.free(cpu, Content::Stored(new));
            return None;
        }
        Some(Exchanged { old, new })
    }

    /// Frees the place of an object that its entry does not name any more, when no reader can hold
    /// it. The calling thread reads no entries.
    pub(super) fn retire_place(&self, cpu: Cpu, old: Object) {
        self.retired.retire(cpu, leaving(old.handle()), |word| self.release(cpu, word));
    }
}
