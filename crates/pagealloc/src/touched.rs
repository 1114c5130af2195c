//! A bitmap of the parts of a table of words that were ever written.

use sync::atomic::{AtomicU64, Ordering};

use crate::{LazyTable, MemoryProvider, NoMemory};

/// Words per bit: as many as a page of memory holds.
const GROUP: usize = 512;

/// One bit for each 512 words of a table, in memory of its own. A terabyte disk has 64 KiB of them.
pub struct Touched {
    words: LazyTable<AtomicU64>,
}

impl Touched {
    /// A bitmap for `slots` slots, none of them written; or what another process left in the memory
    /// of the provider.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for it is out, or when memory is provided ahead and is out.
    pub fn new(provider: &dyn MemoryProvider, slots: usize) -> Result<Touched, NoMemory> {
        Ok(Touched { words: LazyTable::provided(provider, slots.div_ceil(GROUP * 64))? })
    }

    /// Marks the group of a slot that is about to be written.
    #[inline]
    pub fn mark(&self, index: usize) {
        let (word, bit) = Self::place(index);
        if self.words.get(word).load(Ordering::Relaxed) & bit == 0 {
            self.words.get(word).fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether a slot in the group of this one was ever written.
    #[inline]
    #[must_use]
    pub fn is_marked(&self, index: usize) -> bool {
        let (word, bit) = Self::place(index);
        self.words.get(word).load(Ordering::Relaxed) & bit != 0
    }

    /// The first index from `from` on that may have been written; `len` if there is none.
    #[must_use]
    pub fn next(&self, from: usize, len: usize) -> usize {
        let mut group = from / GROUP;
        let groups = len.div_ceil(GROUP);
        while group < groups {
            let word = self.words.get(group / 64).load(Ordering::Relaxed) >> (group % 64);
            if word & 1 != 0 {
                return (group * GROUP).max(from).min(len);
            }
            group += match word {
                0 => 64 - group % 64,
                word => word.trailing_zeros() as usize,
            };
        }
        len
    }

    /// How many of the first `len` slots lie in marked groups. The last group counts as a whole.
    #[must_use]
    pub fn slots(&self, len: usize) -> u64 {
        let words = (0..len.div_ceil(GROUP * 64)).map(|word| self.words.get(word));
        let ones = words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()));
        ones.sum::<u64>() * GROUP as u64
    }

    #[inline]
    fn place(index: usize) -> (usize, u64) {
        let group = index / GROUP;
        (group / 64, 1 << (group % 64))
    }
}
