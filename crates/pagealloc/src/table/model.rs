//! The table under loom, whose atomics are not numbers in memory: entries are made one by one, in
//! the model that uses them. So tables that stand on this one run under loom as they are, if they
//! have few entries.
//!
//! # Why unsafe
//! The trait is that of the real table.

use alloc::vec::Vec;

use crate::{MemoryProvider, NoMemory};

/// A type whose default is what zeroed memory is to the real table.
///
/// # Safety
/// As for the real table.
pub unsafe trait Zeroed: Sync + Default {}

// SAFETY: the real integer is an integer in memory.
unsafe impl Zeroed for sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for sync::atomic::AtomicU32 {}

// SAFETY: an array is its elements one behind the other.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] where [T; N]: Default {}

/// A fixed number of entries, each its default at first.
pub struct LazyTable<T> {
    entries: Vec<T>,
}

impl<T: Zeroed> LazyTable<T> {
    /// A table of `entries` zeroes. The system is not asked for memory.
    ///
    /// # Errors
    /// None; the signature is the real table's.
    pub fn new(_: &dyn MemoryProvider, entries: usize) -> Result<LazyTable<T>, NoMemory> {
        Ok(LazyTable { entries: (0..entries).map(|_| T::default()).collect() })
    }

    /// The same.
    ///
    /// # Errors
    /// None; the signature is the real table's.
    pub fn provided(
        provider: &dyn MemoryProvider,
        entries: usize,
    ) -> Result<LazyTable<T>, NoMemory> {
        LazyTable::new(provider, entries)
    }

    /// How many entries may be used: all.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.len()
    }

    /// Tells that all entries may be used.
    pub fn provide(&self, _: usize) -> bool {
        true
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entry `index`.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn get(&self, index: usize) -> &T {
        &self.entries[index]
    }

    /// The first entry's address, for a hint to the processor's cache.
    pub fn address_of(&self, index: usize) -> *const T {
        self.entries.as_ptr().wrapping_add(index)
    }
}
