//! The table under loom, whose atomics are not numbers in memory. Entries are made one by one, in
//! the model that uses them. So small tables built on this one run under loom unchanged.
//!
//! # Why unsafe
//! The trait has the signature of the real table's.

use alloc::vec::Vec;

use crate::{MemoryProvider, NoMemory};

/// A type whose default equals the zeroed memory of the real table.
///
/// # Safety
/// Those of the real table.
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
    /// Makes a table of `entries` zeroes. It asks the system for no memory.
    ///
    /// # Errors
    /// None; the signature is the real table's.
    pub fn new(_: &dyn MemoryProvider, entries: usize) -> Result<LazyTable<T>, NoMemory> {
        Ok(LazyTable { entries: (0..entries).map(|_| T::default()).collect() })
    }

    /// Makes a table as `new` does.
    ///
    /// # Errors
    /// None; the signature is the real table's.
    pub fn provided(
        provider: &dyn MemoryProvider,
        entries: usize,
    ) -> Result<LazyTable<T>, NoMemory> {
        LazyTable::new(provider, entries)
    }

    /// The number of entries that may be used: all.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.len()
    }

    /// Returns true: all entries may be used.
    pub fn provide(&self, _: usize) -> bool {
        true
    }

    /// Does nothing.
    pub fn release(&self, _: core::ops::Range<usize>) {}

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table has no entries.
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

    /// The address of entry `index`, for a prefetch.
    pub fn address_of(&self, index: usize) -> *const T {
        self.entries.as_ptr().wrapping_add(index)
    }
}
