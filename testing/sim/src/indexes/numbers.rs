//! Entries by number, and their owners.

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

/// Entries for an index. An entry is free, or a caller owns it, or it is in the index. The thread
/// that takes its word out of the index owns the entry again.
pub struct Numbers {
    free: Mutex<Vec<u32>>,
    /// The life of each entry. The lowest bit says whether the entry is in the index.
    state: Vec<AtomicU64>,
}

impl Numbers {
    /// Entries 1 to `most`, all free.
    #[must_use]
    pub fn new(most: u32) -> Numbers {
        let state = (0..=most).map(|_| AtomicU64::new(0)).collect();
        Numbers { free: Mutex::new((1..=most).rev().collect()), state }
    }

    /// Takes a free entry for an insert and starts its next life. `None` if all entries are in use.
    pub fn take(&self) -> Option<Word> {
        let number = self.free.lock().pop()?;
        // Only this thread has the entry. The list's lock orders this with the previous life.
        let state = &self.state[number as usize];
        let life = (state.load(Ordering::Relaxed) >> 1) + 1;
        state.store(life << 1 | 1, Ordering::Relaxed);
        Some(word(number, life as u32))
    }

    /// Frees the entry of `word`, which came out of the index or was not inserted.
    ///
    /// # Panics
    /// If the entry is not in the index: it came out before, or was never inserted.
    pub fn give(&self, word: Word) {
        let life = word.get() >> 32;
        let with_index = life << 1 | 1;
        let state = &self.state[word.number() as usize];
        // If several threads got the same word, only one may succeed. The list's lock orders the
        // rest.
        let given =
            state.compare_exchange(with_index, life << 1, Ordering::Relaxed, Ordering::Relaxed);
        let number = word.number();
        assert!(
            given.is_ok(),
            "entry {number} in its life {life} came out twice, or never went in"
        );
        self.free.lock().push(number);
    }

    /// The number of entries in the index. It is exact while no thread calls `take` or `give`.
    #[must_use]
    pub fn with_index(&self) -> u64 {
        self.state.iter().map(|state| state.load(Ordering::Relaxed) & 1).sum()
    }
}
