//! The index interface: from the offset of a page in a swap area to its entry.
//!
//! An index does not hold entries, it names them. Its promise is linearizability: whatever threads
//! do to an offset at once, there is an order of their calls in which each call returned its
//! result. So if several threads take an entry out, exactly one gets its word and owns the entry.
//!
//! The product has one index: [`Flat`]. Experiments and tests bring others.

mod contract;
mod flat;

use alloc::boxed::Box;
use core::ops::Deref;

use pagealloc::{MemoryProvider, NoMemory};
use units::Cpu;

pub use contract::Index;
pub use flat::Flat;

use crate::Word;

/// Makes an index of any kind: see [`Index::make`].
pub type MakeIndex = fn(&dyn MemoryProvider, u64, u32, usize) -> Result<Box<dyn Index>, NoMemory>;

/// [`MakeIndex`] of this kind.
///
/// # Errors
/// Those of [`Index::make`].
pub fn make<I: Index>(
    provider: &dyn MemoryProvider,
    pages: u64,
    entries: u32,
    cpus: usize,
) -> Result<Box<dyn Index>, NoMemory> {
    Ok(Box::new(I::make(provider, pages, entries, cpus)?))
}

/// The index of an area. The calls for each page reach the product's index without a pointer.
pub(crate) enum AreaIndex {
    Flat(Flat),
    Other(Box<dyn Index>),
}

impl AreaIndex {
    /// [`Index::get`].
    #[inline]
    pub(crate) fn get(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        match self {
            AreaIndex::Flat(flat) => flat.get(cpu, offset),
            AreaIndex::Other(other) => other.get(cpu, offset),
        }
    }

    /// [`Index::insert`].
    #[inline]
    pub(crate) fn insert(
        &self,
        cpu: Cpu,
        offset: u64,
        word: Word,
    ) -> Result<Option<Word>, NoMemory> {
        match self {
            AreaIndex::Flat(flat) => flat.insert(cpu, offset, word),
            AreaIndex::Other(other) => other.insert(cpu, offset, word),
        }
    }

    /// [`Index::remove`].
    #[inline]
    pub(crate) fn remove(&self, cpu: Cpu, offset: u64) -> Option<Word> {
        match self {
            AreaIndex::Flat(flat) => flat.remove(cpu, offset),
            AreaIndex::Other(other) => other.remove(cpu, offset),
        }
    }

    /// [`Index::remove_if`].
    #[inline]
    pub(crate) fn remove_if(&self, cpu: Cpu, offset: u64, word: Word) -> bool {
        match self {
            AreaIndex::Flat(flat) => flat.remove_if(cpu, offset, word),
            AreaIndex::Other(other) => other.remove_if(cpu, offset, word),
        }
    }
}

impl Deref for AreaIndex {
    type Target = dyn Index;

    fn deref(&self) -> &dyn Index {
        match self {
            AreaIndex::Flat(flat) => flat,
            AreaIndex::Other(other) => &**other,
        }
    }
}
