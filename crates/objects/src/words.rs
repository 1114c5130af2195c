//! Words of a record, in memory that outlives the process.

use alloc::vec::Vec;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Words in memory that may outlive the process. One thread at a time writes them.
pub struct Words(LazyTable<AtomicU64>);

impl Words {
    /// `count` words: zeroes, or what another process left in the memory of the provider.
    ///
    /// # Errors
    /// [`NoMemory`] when memory or addresses are out.
    pub fn new(provider: &dyn MemoryProvider, count: usize) -> Result<Words, NoMemory> {
        LazyTable::provided(provider, count).map(Words)
    }

    /// A word.
    #[must_use]
    pub fn get(&self, at: usize) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.0.get(at).load(Ordering::Acquire)
    }

    /// Writes a word, after all that was written before it.
    pub fn set(&self, at: usize, value: u64) {
        // Release pairs with the Acquire in `get`, also of another process.
        self.0.get(at).store(value, Ordering::Release);
    }

    /// The first `length` bytes of the words from `at` on.
    #[must_use]
    pub fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        let words = (at..at + length.div_ceil(WORD)).map(|at| self.get(at));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        bytes.truncate(length);
        bytes
    }
}

/// The bytes in words, the last filled up with zeroes.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(WORD).map(|chunk| {
        let mut word = [0; WORD];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    })
}

/// A checksum (FNV-1a) over words; never 0.
#[must_use]
pub fn sum(words: impl Iterator<Item = u64>) -> u64 {
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    words.fold(0xcbf2_9ce4_8422_2325, step) | 1
}
