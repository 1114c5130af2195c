//! A set of frames: a bit for each.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use units::Frame;

use crate::{LazyTable, MemoryProvider, NoMemory};

/// Frames per word.
const WORD: u32 = u64::BITS;

/// A set of the frames of a zone. Any number of threads may call every method at once.
pub struct FrameSet {
    words: LazyTable<AtomicU64>,
    frames: u32,
    /// One more than the highest frame that was inserted.
    end: AtomicU32,
}

impl FrameSet {
    /// Makes an empty set for frames below `frames`. It takes memory where frames are inserted.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range, or when it provides memory ahead and is
    /// out.
    pub fn new(provider: &dyn MemoryProvider, frames: u32) -> Result<FrameSet, NoMemory> {
        let words = LazyTable::provided(provider, frames.div_ceil(WORD) as usize)?;
        Ok(FrameSet { words, frames, end: AtomicU32::new(0) })
    }

    /// Inserts a frame. Returns whether it was missing.
    ///
    /// # Panics
    /// If the set is not for this frame.
    pub fn insert(&self, frame: Frame) -> bool {
        assert!(frame.0 < self.frames, "frame {} is none of {}", frame.0, self.frames);
        let bit = 1 << (frame.0 % WORD);
        let word = self.words.get((frame.0 / WORD) as usize);
        if self.end.load(Ordering::Relaxed) <= frame.0 {
            self.end.fetch_max(frame.0 + 1, Ordering::Relaxed);
        }
        word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Whether the frame is in the set. A frame that the set is not for is not.
    #[must_use]
    pub fn contains(&self, frame: Frame) -> bool {
        frame.0 < self.frames && self.word(frame.0 / WORD) & 1 << (frame.0 % WORD) != 0
    }

    /// One more than the highest frame in the set; 0 if it is empty.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }

    /// The bits of frames `number * 64` to `number * 64 + 63`.
    pub(crate) fn word(&self, number: u32) -> u64 {
        match (number as usize) < self.words.len() {
            true => self.words.get(number as usize).load(Ordering::Relaxed),
            false => 0,
        }
    }
}
