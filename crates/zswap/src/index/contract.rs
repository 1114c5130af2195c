//! The contract of an index of any kind.
//!
//! # Why unsafe
//! The engine frees entries, with their objects, when an index returns them: see [`Index`].

use core::ops::Range;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;

use crate::key::Word;

/// The index of one swap area. Any number of threads may call every method at once. Offsets are
/// below the number of pages it was made for.
///
/// # Safety
/// The caller that gets a word back frees its entry. A word that was put in once comes out at most
/// once: from `insert`, `remove` or `drain`, or by a `remove_if` that returns true. No other word
/// comes out. `get` never returns a word that had come out before the call.
pub unsafe trait Index: Send + Sync + 'static {
    /// Makes the index of an area of `pages` pages, for entries numbered 1 to `entries`. It takes
    /// address space; memory is taken at once only for the CPUs.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for it is out.
    fn make(
        provider: &dyn MemoryProvider,
        pages: u64,
        entries: u32,
        cpus: usize,
    ) -> Result<Self, NoMemory>
    where
        Self: Sized;

    /// The entry at `offset`. The caller keeps entries from reuse.
    fn get(&self, cpu: Cpu, offset: u64) -> Option<Word>;

    /// Puts `word` at `offset`, and returns the old word. Entries are numbered from 1 to the most
    /// the index was made for. A number is at one offset at a time.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed then, and the old word stays.
    fn insert(&self, cpu: Cpu, offset: u64, word: Word) -> Result<Option<Word>, NoMemory>;

    /// Takes out the word at `offset`.
    fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word>;

    /// Takes `word` out if it is at `offset`; returns whether it was.
    fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool;

    /// Takes out all words within `offsets`, in ascending order, and passes each to `visit`, which
    /// must not call the index. Words that other threads put there meanwhile may stay.
    fn drain(&self, cpu: Cpu, offsets: Range<u64>, visit: &mut dyn FnMut(u64, Word));

    /// If memory is provided ahead: provides memory for entries numbered up to `entries`, and for
    /// at least `more` nodes beyond those ever used. Returns whether it is provided. It may wait
    /// for memory, and holds no lock meanwhile that other threads need.
    fn provide(&self, entries: u32, more: u32) -> bool;

    /// The number of entries; approximate if other threads change it.
    fn count(&self) -> u64;

    /// Bytes of memory that its nodes take now, if it has nodes, which come and go.
    fn bytes(&self) -> u64;

    /// Bytes of memory of a table that stays with the index.
    fn table_bytes(&self) -> u64 {
        0
    }

    /// Checks its structure. Call it only while no thread changes it.
    ///
    /// # Panics
    /// The message names the parts that contradict each other.
    fn validate(&self);
}
