//! Entries by number, and who owns them.

use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};
use zswap::Word;

/// The word of entry `number` in its life `life`.
///
/// # Panics
/// For number 0.
#[must_use]
pub fn word(number: u32, life: u32) -> Word {
    Word::new(number, life).expect("entries are numbered from 1")
}

/// Entries that may be put into an index. Each is free, or the caller's, or in the index; who takes
/// its word out of the index owns it again.
pub struct Numbers {
    free: Mutex<Vec<u32>>,
    /// The life of each, and in the lowest bit whether it is with the index.
    state: Vec<AtomicU64>,
}

impl Numbers {
    /// Entries 1 to `most`, all free.
    #[must_use]
    pub fn new(most: u32) -> Numbers {
        let state = (0..=most).map(|_| AtomicU64::new(0)).collect();
        Numbers { free: Mutex::new((1..=most).rev().collect()), state }
    }

    /// A free entry in a new life, about to be put into the index; none if all are used.
    pub fn take(&self) -> Option<Word> {
        let number = self.free.lock().pop()?;
        // Nobody else has it: the list's lock orders this with the life before.
        let state = &self.state[number as usize];
        let life = (state.load(Ordering::Relaxed) >> 1) + 1;
        state.store(life << 1 | 1, Ordering::Relaxed);
        Some(word(number, life as u32))
    }

    /// `word` came out of the index, or did not go in.
    ///
    /// # Panics
    /// If it is not with the index: it came out before, or never went in.
    pub fn give(&self, word: Word) {
        let life = word.get() >> 32;
        let with_index = life << 1 | 1;
        let state = &self.state[word.number() as usize];
        // Several who got the same word must not all succeed; the list's lock orders the rest.
        let given =
            state.compare_exchange(with_index, life << 1, Ordering::Relaxed, Ordering::Relaxed);
        let number = word.number();
        assert!(
            given.is_ok(),
            "entry {number} in its life {life} came out twice, or never went in"
        );
        self.free.lock().push(number);
    }

    /// Entries with the index. Exact while nobody takes or gives.
    #[must_use]
    pub fn with_index(&self) -> u64 {
        self.state.iter().map(|state| state.load(Ordering::Relaxed) & 1).sum()
    }
}
