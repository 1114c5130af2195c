//! The frames that have no memory although others of their pageblock have.

use sync::atomic::{AtomicU64, Ordering};

use super::runs::WORDS;
use crate::{LazyTable, MemoryProvider, NoMemory};

/// A bit for each frame that is withheld from allocation until it has memory. Its pageblock looks
/// as if the frame were allocated. The housekeeping lock guards it.
pub(super) struct Withheld {
    words: LazyTable<AtomicU64>,
    /// No pageblock below has such a frame.
    lowest: u32,
}

impl Withheld {
    /// The set for `blocks` pageblocks, empty.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has none.
    pub fn new(provider: &dyn MemoryProvider, blocks: u32) -> Result<Withheld, NoMemory> {
        let words = LazyTable::provided(provider, blocks as usize * WORDS)?;
        Ok(Withheld { words, lowest: 0 })
    }

    /// The bits of a pageblock.
    pub fn of(&self, block: u32) -> [u64; WORDS] {
        core::array::from_fn(|word| self.word(block, word).load(Ordering::Relaxed))
    }

    /// Adds frames of a pageblock.
    pub fn add(&mut self, block: u32, frames: &[u64; WORDS]) {
        for (word, before) in self.of(block).into_iter().enumerate() {
            self.set(block, word, before | frames[word]);
        }
        self.lowest = self.lowest.min(block);
    }

    /// The frames of the lowest word that has some; in pageblocks below `end`.
    pub fn first(&mut self, end: u32) -> Option<(u32, usize, u64)> {
        while self.lowest < end {
            let words = self.of(self.lowest);
            if let Some(word) = words.iter().position(|word| *word != 0) {
                return Some((self.lowest, word, words[word]));
            }
            self.lowest += 1;
        }
        None
    }

    /// Takes all frames of a word off.
    pub fn clear(&mut self, block: u32, word: usize) {
        self.set(block, word, 0);
    }

    fn set(&self, block: u32, word: usize, frames: u64) {
        self.word(block, word).store(frames, Ordering::Relaxed);
    }

    fn word(&self, block: u32, word: usize) -> &AtomicU64 {
        self.words.get(block as usize * WORDS + word)
    }
}
