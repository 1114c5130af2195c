//! A table in lazily backed memory: an entry uses memory from its first write on.
//!
//! If memory is provided ahead ([`MemoryProvider::is_ahead`]), an entry may be used after
//! [`LazyTable::provide`] has given it memory, from the first entry on.
//!
//! If the provider gives memory with the contents that another process left, the table has those
//! contents.
//!
//! # Why unsafe
//! Entries are not constructed one by one: zeroed memory *is* the initial table. So a table of a
//! billion entries is made without a touch.

use core::mem::size_of;
use core::ops::Range;

use sync::atomic::{AtomicUsize, Ordering};
use units::{PAGE_SIZE, PAGEBLOCK_SIZE};

use crate::{MemoryProvider, NoMemory, Region};

/// Bytes per request to the system. A thread waits for this much at a time.
const PIECE: usize = 64 * 1024;

/// A type that is shared between threads and whose all-zero bytes are its initial value.
///
/// # Safety
/// All-zero memory must be a valid value of the type, and so must any other bytes: memory that
/// another process left may have any contents. The type must not need dropping.
pub unsafe trait Zeroed: Sync {}

// SAFETY: an atomic integer has the representation of the integer, for which all bytes are valid.
unsafe impl Zeroed for sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for sync::atomic::AtomicU32 {}

// SAFETY: an array is its elements one behind the other.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A fixed number of entries in memory of their own, zeroes at first.
pub struct LazyTable<T> {
    region: Region,
    entries: usize,
    /// Entries below this number may be used.
    ready: AtomicUsize,
    kind: core::marker::PhantomData<fn() -> T>,
}

impl<T: Zeroed> LazyTable<T> {
    /// Makes a table of `entries` zeroes, or of what another process left in the memory of the
    /// provider. It takes address space, not memory.
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

    /// Makes a table whose entries may all be used, whatever the provider.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no such range, or when memory is provided ahead and is
    /// out.
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

    /// The number of entries that may be used, from the first one on: all, unless memory is
    /// provided ahead.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> usize {
        // Acquire pairs with the Release in `provide`: the entries have memory.
        self.ready.load(Ordering::Acquire)
    }

    /// Provides memory for the first `entries` entries, or for all if the table has fewer. Returns
    /// whether they may be used. Waits for memory piece by piece, so the caller is a thread that
    /// may wait and holds no lock that other threads need. Several threads may call it at once.
    pub fn provide(&self, entries: usize) -> bool {
        let wanted = entries.min(self.entries);
        loop {
            let ready = self.ready();
            if ready >= wanted {
                return true;
            }
            // Neighbours may share a page, even with entries that are ready.
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

    /// Gives the memory of entries back that are alone in their pages. Each is zeroes afterwards,
    /// or as before. Nobody uses them meanwhile, and memory is not provided ahead.
    pub fn release(&self, entries: Range<usize>) {
        debug_assert_eq!(self.ready(), self.entries, "the memory was provided");
        let start = (entries.start * size_of::<T>()).next_multiple_of(PAGE_SIZE);
        let end = match entries.end < self.entries {
            true => entries.end * size_of::<T>() / PAGE_SIZE * PAGE_SIZE,
            false => self.region.bytes(),
        };
        if start < end {
            self.region.release(start, end - start);
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether the table has no entries.
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
        // SAFETY: the entry lies within the committed region, which is aligned far beyond `T`.
        // `Zeroed` makes any bytes a `T`, and only `&T` is ever handed out.
        unsafe { &*self.region.base().as_ptr().cast::<T>().add(index) }
    }

    /// The address of entry `index`, for a prefetch. It need not be in the table.
    #[inline]
    pub fn address_of(&self, index: usize) -> *const T {
        self.region.base().as_ptr().cast::<T>().wrapping_add(index)
    }
}
