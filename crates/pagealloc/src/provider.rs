//! Where memory comes from.
//!
//! # Why unsafe
//! A region is addresses; that they are its owner's is the promise of whoever made it.

use alloc::boxed::Box;
use core::fmt;
use core::ptr::NonNull;

/// The operating system could not give the memory asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory {
    /// How much was asked for.
    pub bytes: usize,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for {} bytes", self.bytes)
    }
}

impl core::error::Error for NoMemory {}

/// Where the engine gets its memory: it gives ranges of addresses.
pub trait MemoryProvider: Send + Sync {
    /// Reserves `bytes` (rounded up to 2 MiB) of addresses, aligned to 2 MiB. Costs no memory
    /// until committed and touched.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no such range.
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory>;

    /// Whether memory is provided ahead of its use. Then nobody touches a part of a
    /// region before [`Region::populate`] has given it memory, and only a thread that may wait
    /// calls that: see [`LazyTable::provide`](crate::LazyTable::provide) and
    /// [`Frames::provide`](crate::Frames::provide). So whoever uses what was provided takes no
    /// page fault and waits for no memory.
    fn is_ahead(&self) -> bool {
        false
    }
}

/// What keeps a region alive and moves its memory; dropping it unmaps.
///
/// # Safety
/// The implementation owns the range it was made for until it is dropped.
pub unsafe trait RegionKeeper: Send + Sync {
    /// Makes a part of the region usable: readable, writable, zero where never written. Touching
    /// it costs memory, committing does not. `offset` and `bytes` are multiples of 2 MiB.
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses.
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory>;

    /// Gives the memory of a committed part back to the system; it reads as zeroes afterwards and
    /// stays usable. `offset` and `bytes` are multiples of 4096. Errors are passed over: the part
    /// then merely keeps its memory.
    fn release(&self, offset: usize, bytes: usize);

    /// Every frame of this 2 MiB block is in use: the system may back it with one huge page.
    /// Contents stay. Errors are passed over.
    fn collapse(&self, offset: usize);

    /// A committed part is going to be written to soon, all of it: the system may provide its
    /// memory now, with one call for many pages. `offset` and `bytes` are multiples of 4096.
    /// Contents stay, also when others change them meanwhile. Tells whether all of the part has
    /// memory now; it may wait for that.
    fn populate(&self, offset: usize, bytes: usize) -> bool {
        let _ = (offset, bytes);
        true
    }
}

/// A reserved range of addresses.
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    keeper: Box<dyn RegionKeeper>,
}

// SAFETY: a region is an address range and its keeper, which is Send; it hands out no references.
unsafe impl Send for Region {}
// SAFETY: as above; every method takes `&self` and the keeper is Sync.
unsafe impl Sync for Region {}

impl Region {
    /// The range `base .. base + bytes`, kept by `keeper`.
    ///
    /// # Safety
    /// `keeper` owns the range, and it is aligned to 2 MiB.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keeper: Box<dyn RegionKeeper>) -> Region {
        Region { base, bytes, keeper }
    }

    /// Where it begins.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// See [`RegionKeeper::commit`].
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses.
    pub fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory> {
        debug_assert!(offset + bytes <= self.bytes);
        self.keeper.commit(offset, bytes)
    }

    /// See [`RegionKeeper::release`].
    pub fn release(&self, offset: usize, bytes: usize) {
        debug_assert!(offset + bytes <= self.bytes);
        self.keeper.release(offset, bytes);
    }

    /// See [`RegionKeeper::collapse`].
    pub fn collapse(&self, offset: usize) {
        debug_assert!(offset < self.bytes);
        self.keeper.collapse(offset);
    }

    /// See [`RegionKeeper::populate`].
    pub fn populate(&self, offset: usize, bytes: usize) -> bool {
        debug_assert!(offset + bytes <= self.bytes);
        self.keeper.populate(offset, bytes)
    }
}
