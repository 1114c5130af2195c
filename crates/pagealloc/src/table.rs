//! A table in lazily backed memory: an entry costs memory from the day it is first written.
//!
//! # Why unsafe
//! Entries are not constructed one by one: zeroed memory *is* the initial table, so a table of a
//! billion entries can be made without touching it.

use core::mem::size_of;

use units::BLOCK_SIZE;

use crate::{NoMemory, Region, World};

/// A type whose all-zero bytes are its initial value, and that is shared between threads.
///
/// # Safety
/// All-zero memory must be a valid value of the type, and the type must not need dropping.
pub unsafe trait Zeroed: Sync {}

// SAFETY: an atomic integer has the representation of the integer, for which zeroes are valid.
#[cfg(not(loom))]
unsafe impl Zeroed for sync::atomic::AtomicU64 {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Zeroed for sync::atomic::AtomicU32 {}

// SAFETY: an array is its elements one behind the other.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A fixed number of zero-initialised entries in memory of their own.
pub struct LazyTable<T> {
    region: Region,
    entries: usize,
    kind: core::marker::PhantomData<fn() -> T>,
}

impl<T: Zeroed> LazyTable<T> {
    /// A table of `entries` zeroes. Costs addresses, not memory.
    ///
    /// # Errors
    /// [`NoMemory`] when the world has no such range.
    pub fn new(world: &dyn World, entries: usize) -> Result<LazyTable<T>, NoMemory> {
        const { assert!(BLOCK_SIZE.is_multiple_of(align_of::<T>())) };
        let bytes = entries
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(BLOCK_SIZE))
            .ok_or(NoMemory { bytes: usize::MAX })?;
        let region = world.reserve(bytes)?;
        region.commit(0, bytes)?;
        Ok(LazyTable { region, entries, kind: core::marker::PhantomData })
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entry `index`.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub fn get(&self, index: usize) -> &T {
        assert!(index < self.entries, "no entry {index} in a table of {}", self.entries);
        // SAFETY: the entry lies within the committed region, which is aligned far beyond `T`;
        // `Zeroed` makes its bytes a `T` from the beginning, and only `&T` is ever handed out.
        unsafe { &*self.region.base().as_ptr().cast::<T>().add(index) }
    }

    /// The first entry's address, for a hint to the processor's cache.
    #[inline]
    pub fn address_of(&self, index: usize) -> *const T {
        self.region.base().as_ptr().cast::<T>().wrapping_add(index)
    }
}
