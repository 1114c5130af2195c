//! What is kept of a segment where a log outlives its process: a word. The slots say all else.
//!
//! | bits | what |
//! |---|---|
//! | 0–31 | when the youngest of its objects was new |
//! | 32–48 | what was appended, in units |
//! | 49–50 | 0: it is free, 1: open for new objects, 2: open for survivors, 3: none of these |
//! | 51 | 0 |
//! | 52–63 | its life |
//!
//! A word of 0 is a segment that was never used.

use crate::header::Generation;
use crate::layout::UNIT_BYTES;

const USED_SHIFT: u32 = 32;
const USE_SHIFT: u32 = 49;
const GENERATION_SHIFT: u32 = 52;

/// Keeps the words of segments for another process. It is told of each change before
/// [`Segments`](crate::Segments) returns: so a word is kept before anything is written to the
/// device that it speaks of. Calls come under the lock of the caller's log, in the order of the
/// changes.
pub trait Keep: Send + Sync {
    /// The word of a segment is `word` from now on.
    fn keep(&self, segment: u32, word: u64);
}

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// It may be opened.
    Free,
    /// New objects are appended.
    New,
    /// Survivors are appended.
    Survivors,
    /// Nothing is appended: it is full, to be punched, or being cleaned or punched.
    Closed,
}

/// What is kept of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// When the youngest of its objects was new.
    pub youngest: u32,
    /// Bytes that were appended, in whole units.
    pub used: u32,
    /// What it is used for.
    pub is: Use,
    /// Its life.
    pub generation: Generation,
}

impl Word {
    /// The number that is kept.
    pub fn encode(self) -> u64 {
        u64::from(self.youngest)
            | u64::from(self.used / UNIT_BYTES) << USED_SHIFT
            | (self.is as u64) << USE_SHIFT
            | u64::from(self.generation.get()) << GENERATION_SHIFT
    }

    /// What a number says of a segment of this many bytes; `None` if it cannot be.
    pub fn decode(word: u64, segment_bytes: u32) -> Option<Word> {
        if word == 0 {
            let generation = Generation::FIRST;
            return Some(Word { youngest: 0, used: 0, is: Use::Free, generation });
        }
        let is = match word >> USE_SHIFT & 7 {
            0 => Use::Free,
            1 => Use::New,
            2 => Use::Survivors,
            3 => Use::Closed,
            _ => return None,
        };
        // 17 bits of units.
        let used = (word >> USED_SHIFT & 0x1_ffff) as u32 * UNIT_BYTES;
        let generation = Generation::new((word >> GENERATION_SHIFT) as u16)?;
        let word = Word { youngest: word as u32, used, is, generation };
        (used <= segment_bytes).then_some(word)
    }
}
