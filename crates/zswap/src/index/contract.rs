//! What an index is, whatever its kind.
//!
//! # Why unsafe
//! Entries are freed, with their objects, by what an index says: see [`Index`].

use core::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;

use crate::key::Word;

/// Pages in each part of a split index: 64 MiB of swap space, as Linux splits its own (Chengming
/// Zhou, linux-mm, "mm/zswap: split zswap rb-tree", 2024).
pub const PAGES_PER_PART: u64 = 1 << 14;

/// The index of one swap area. Every method may be called by any number of threads at once.
/// Offsets are below the number of pages it was made for.
///
/// # Safety
/// Whoever is given a word that was taken out frees its entry. A word that was put in once comes
/// out once at most: from `insert`, `remove` or `drain`, or by a `remove_if` that is true. No
/// other word does. `get` finds none that had come out before it was called.
pub unsafe trait Index: Send + Sync + 'static {
    /// Makes the index of an area of `pages` pages, for entries numbered 1 to `entries`. Costs
    /// addresses, and memory only for the CPUs.
    ///
    /// # Errors
    /// [`NoMemory`] when there are no addresses for it.
    fn make(
        provider: &dyn MemoryProvider,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<Self, NoMemory>
    where
        Self: Sized;

    /// The entry at `offset`. The caller holds what keeps entries from being used again.
    fn get(&self, cpu: Cpu, offset: u64) -> Option<Word>;

    /// Puts `word` at `offset`, and gives what was there. Entries are numbered from 1 to the most
    /// the index was made for; a number is at one offset at a time.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed then, and what is there stays.
    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory>;

    /// Takes out what is at `offset`.
    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word>;

    /// Takes `word` out if it is at `offset`; tells whether it was.
    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool;

    /// Takes out everything within `offsets`, in ascending order, and shows each to `visit`, which
    /// must not call the index. What others put there meanwhile may stay.
    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word));

    /// Where memory is provided ahead: for entries numbered up to `entries`, and for at least
    /// `more` nodes beyond those that were ever used. Tells whether it is there. It may wait for
    /// memory, and holds nothing that others want meanwhile.
    fn provide(&self, entries: u32, more: u32) -> bool;

    /// Entries there are. Of a moment, if others change it.
    fn count(&self) -> u64;

    /// Bytes of memory its nodes take now.
    fn bytes(&self) -> u64;

    /// Checks its structure, while nobody changes it.
    ///
    /// # Panics
    /// Says what contradicts what.
    fn validate(&self);
}
