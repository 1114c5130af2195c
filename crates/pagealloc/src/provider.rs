//! The source of memory: providers, regions and their keepers.
//!
//! # Why unsafe
//! A region is a range of addresses. Its maker promises that the region owns them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

/// The error of a provider that cannot give the memory asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory {
    /// The number of bytes asked for.
    pub bytes: usize,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for {} bytes", self.bytes)
    }
}

impl core::error::Error for NoMemory {}

/// The source of the engine's memory: it gives ranges of addresses.
pub trait MemoryProvider: Send + Sync {
    /// Reserves `bytes` (rounded up to 2 MiB) of addresses, aligned to 2 MiB. Memory is used only
    /// after commit and first touch.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no such range.
    fn reserve(&self, bytes: usize) -> Result<Region, NoMemory>;

    /// Whether memory is provided ahead of its use. Then no thread touches a part of a region
    /// before [`Region::populate`] has given it memory, and only a thread that may wait calls
    /// `populate`: see [`LazyTable::provide`](crate::LazyTable::provide) and
    /// [`Frames::provide`](crate::Frames::provide). So a thread that uses provided memory takes no
    /// page fault and waits for no memory.
    fn is_ahead(&self) -> bool {
        false
    }
}

/// Memory that outlives the process. Any number of threads may call it at once.
pub trait KeptMemory: Send + Sync {
    /// The provider of the region `name`, and of further ones with names derived from it, in the
    /// order of the calls. A region that another process left has its contents.
    fn provider(&self, name: &str) -> Arc<dyn MemoryProvider>;

    /// Whether there is a region `name`, in use or left by another process.
    fn has(&self, name: &str) -> bool;
}

/// Keeps a region alive and moves its memory. A drop unmaps the region.
///
/// # Safety
/// The implementation owns the range it was made for until it is dropped.
pub unsafe trait RegionKeeper: Send + Sync {
    /// Makes a part of the region usable: readable, writable, and zero where never written. A touch
    /// uses memory, a commit does not. `offset` and `bytes` are multiples of 2 MiB.
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses.
    fn commit(&self, offset: usize, bytes: usize) -> Result<(), NoMemory>;

    /// Gives the memory of a committed part back to the system. The part stays usable; each page of
    /// it reads as zeroes afterwards, or as before. `offset` and `bytes` are multiples of 4096. A
    /// page of the system may be larger: one that does not lie whole in the part keeps its memory
    /// and contents. So do pages whose release fails. Nothing outside the part changes.
    fn release(&self, offset: usize, bytes: usize);

    /// Tells the system that it may back this 2 MiB block with one huge page, because every frame
    /// of it is in use. Contents stay. Errors are ignored.
    fn collapse(&self, offset: usize);

    /// Tells the system that a committed part will be written soon, all of it. The system may
    /// provide its memory now, with one call for many pages. `offset` and `bytes` are multiples of
    /// 4096. Contents stay, also when other threads change them meanwhile. Returns whether all of
    /// the part has memory now; it may wait for that.
    fn populate(&self, offset: usize, bytes: usize) -> bool {
        let _ = (offset, bytes);
        true
    }

    /// Whether a committed part of memory that another process left has memory, all of it. `offset`
    /// and `bytes` are multiples of 4096. True where the system does not tell: to populate such a
    /// part may ask for memory.
    fn has_memory(&self, offset: usize, bytes: usize) -> bool {
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

// SAFETY: a region is an address range and its keeper, which is Send. It hands out no references.
unsafe impl Send for Region {}
// SAFETY: as above; every method takes `&self` and the keeper is Sync.
unsafe impl Sync for Region {}

impl Region {
    /// Makes the region `base .. base + bytes`, kept by `keeper`.
    ///
    /// # Safety
    /// `keeper` owns the range, and it is aligned to 2 MiB.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keeper: Box<dyn RegionKeeper>) -> Region {
        Region { base, bytes, keeper }
    }

    /// The first address of the region.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length of the region in bytes.
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
    /// See [`RegionKeeper::has_memory`].
    pub fn has_memory(&self, offset: usize, bytes: usize) -> bool {
        debug_assert!(offset + bytes <= self.bytes);
        self.keeper.has_memory(offset, bytes)
    }
}
