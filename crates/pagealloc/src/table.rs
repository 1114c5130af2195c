//! A table in lazily backed memory: an entry costs memory from the day it is first written.
//!
//! where memory is provided ahead ([`MemoryProvider::is_ahead`]) entries may be used once
//! [`LazyTable::provide`] has given them memory, which goes from the first entry on.
//!
//! # Why unsafe
//! Entries are not constructed one by one: zeroed memory *is* the initial table, so a table of a
//! billion entries can be made without touching it.

use core::mem::size_of;

use sync::atomic::{AtomicUsize, Ordering};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE};

use crate::{MemoryProvider, NoMemory, Region};

/// Bytes for which the system is asked at a time: so much is waited for at once.
const PIECE: usize = 64 * 1024;

/// A type whose all-zero bytes are its initial value, and that is shared between threads.
///
/// # Safety
/// All-zero memory must be a valid value of the type, and the type must not need dropping.
pub unsafe trait Zeroed: Sync {}

// SAFETY: an atomic integer has the representation of the integer, for which zeroes are valid.
unsafe impl Zeroed for sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for sync::atomic::AtomicU32 {}

// SAFETY: an array is its elements one behind the other.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A fixed number of zero-initialised entries in memory of their own.
pub struct LazyTable<T> {
    region: Region,
    entries: usize,
    /// Entries below this number may be used.
    ready: AtomicUsize,
    kind: core::marker::PhantomData<fn() -> T>,
}

impl<T: Zeroed> LazyTable<T> {
    /// A table of `entries` zeroes. Costs addresses, not memory.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range.
    pub fn new(provider: &dyn MemoryProvider, entries: usize) -> Result<LazyTable<T>, NoMemory> {
        const { assert!(PAGEBLOCK_SIZE.is_multiple_of(align_of::<T>())) };
        let bytes = entries
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(PAGEBLOCK_SIZE))
            .ok_or(NoMemory { bytes: usize::MAX })?;
        let region = provider.reserve(bytes)?;
        region.commit(0, bytes)?;
        let ready = AtomicUsize::new(if provider.is_ahead() { 0 } else { entries });
        Ok(LazyTable { region, entries, ready, kind: core::marker::PhantomData })
    }

    /// A table all of whose entries may be used, whatever the provider.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range, or no memory for it where that is provided
    /// ahead.
    pub fn provided(
        provider: &dyn MemoryProvider,
        entries: usize,
    ) -> Result<LazyTable<T>, NoMemory> {
        let table = LazyTable::new(provider, entries)?;
        match table.provide(entries) {
            true => Ok(table),
            false => Err(NoMemory { bytes: entries * size_of::<T>() }),
        }
    }

    /// How many entries may be used, from the first one on: all of them, unless memory is provided
    /// ahead.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> usize {
        // Acquire pairs with the Release in `provide`: the entries have memory.
        self.ready.load(Ordering::Acquire)
    }

    /// Sees to it that the first `entries` entries may be used, or all if there are fewer; tells
    /// whether they may. Waits for memory piece by piece, so it is for a thread that may wait and
    /// holds no lock that others want. Several may call it at once.
    pub fn provide(&self, entries: usize) -> bool {
        let wanted = entries.min(self.entries);
        loop {
            let ready = self.ready();
            if ready >= wanted {
                return true;
            }
            // Neighbours may share a page, also with the entries that are ready.
            let start = ready * size_of::<T>() / PAGE_SIZE * PAGE_SIZE;
            let piece = const {
                let two = (2 * size_of::<T>()).next_multiple_of(PAGE_SIZE);
                if two > PIECE { two } else { PIECE }
            };
            let end = (start + piece).min(self.region.bytes());
            if !self.region.populate(start, end - start) {
                return false;
            }
            let now = (end / size_of::<T>()).min(self.entries);
            // Release pairs with the Acquire in `ready`.
            self.ready.fetch_max(now, Ordering::Release);
        }
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
