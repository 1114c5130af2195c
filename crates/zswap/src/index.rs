//! The seam of indexes: from the offset of a page in a swap area to its entry.
//!
//! An index keeps no entries, it names them. It promises one thing: whatever threads do to an
//! offset at once, there is an order of their calls in which each returned what it did. So of
//! several that take an entry out, exactly one gets its word, and that one owns the entry.
//!
//! There are four: [`RbTree`] has one lock, [`XArray`] one for those who change it, and both can be
//! [`Split`], so that each part has a lock of its own.

use alloc::boxed::Box;
use core::ops::Range;

use pagealloc::{NoMemory, World};
use units::Cpu;

use crate::Word;

mod radix;
mod red_black;
mod stock;
mod trees;
mod xarray;

pub use red_black::RedBlackTrees;
pub use trees::{Forest, Split, Trees, Whole};
pub use xarray::RadixTrees;

/// `rbtree`: one red-black tree, one lock (Linux's zswap of 2013).
pub type RbTree = Whole<RedBlackTrees>;
/// `rbtree-split`: a red-black tree and a lock for each part (2024).
pub type RbTreeSplit = Split<RedBlackTrees>;
/// `xarray`: one radix tree with lookups that take no lock, and one lock for those who change it.
pub type XArray = Whole<RadixTrees>;
/// `xarray-split`: such a tree for each part (Linux's now).
pub type XArraySplit = Split<RadixTrees>;

/// Pages in each part of a split index: 64 MiB of swap space, as Linux splits its own (Chengming
/// Zhou, linux-mm, "mm/zswap: split zswap rb-tree", 2024).
pub const PAGES_PER_PART: u64 = 1 << 14;

/// The index of one swap area. Every method may be called by any number of threads at once.
/// Offsets are below the number of pages it was made for.
pub trait Index: Send + Sync {
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

/// Makes the index of an area of so many pages, for entries numbered 1 to the second number, and
/// for so many CPUs.
///
/// # Errors
/// [`NoMemory`] when there are no addresses for it.
pub type MakeIndex = fn(&dyn World, u64, u32, usize) -> Result<Box<dyn Index>, NoMemory>;
