//! The results of a store, a load and a writeback.

use core::fmt;

use control::Errno;

/// The reason why the cache refused a page. The cache has dropped its old copy of the page, and the
/// owner may write the page to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// The area is off, or the offset lies beyond its end.
    NoArea,
    /// The cache takes no pages (`enabled`), or no pages of this kind.
    Disabled,
    /// The pool is at its limit, or was a moment ago.
    PoolLimit,
    /// The memcg is at its limit, or was removed.
    MemcgLimit,
    /// The page allocator has no frame.
    NoMemory,
    /// There is no entry, or no node of the index, for the page.
    NoEntry,
    /// The page did not shrink.
    Incompressible,
    /// The page did not shrink enough (`max_compression_ratio`).
    Poor,
}

impl Reject {
    /// The error number of the reason, as in Linux's zswap of 2013 where that had one.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Reject::NoArea | Reject::Disabled => Errno::ENODEV,
            Reject::PoolLimit | Reject::MemcgLimit | Reject::NoMemory | Reject::NoEntry => {
                Errno::ENOMEM
            }
            Reject::Incompressible => Errno::EINVAL,
            Reject::Poor => Errno::E2BIG,
        }
    }

    /// Whether the page is refused only because memory is missing now.
    pub(crate) const fn is_for_memory(self) -> bool {
        matches!(self, Reject::NoMemory | Reject::NoEntry)
    }

    /// Whether writeback of other pages may make space for this one.
    pub(crate) const fn is_for_space(self) -> bool {
        matches!(self, Reject::PoolLimit | Reject::MemcgLimit | Reject::NoMemory | Reject::NoEntry)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reject::NoArea => "there is no such page of a swap area that is on",
            Reject::Disabled => "the cache takes no such pages",
            Reject::PoolLimit => "the pool is as large as it may be",
            Reject::MemcgLimit => "the memcg has as much as it may have",
            Reject::NoMemory => "no frame is left",
            Reject::NoEntry => "no entry is left",
            Reject::Incompressible => "the page does not shrink",
            Reject::Poor => "the page does not shrink enough",
        })
    }
}

impl core::error::Error for Reject {}

/// The reason why a load failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The cache does not have the page. The device may have it.
    NotFound,
    /// The object does not decompress to a page, or what another process left of the page could
    /// not be right. It stays in the cache.
    Corrupt,
}

impl LoadError {
    /// The error number that Linux returns for this case.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            LoadError::NotFound => Errno::ENOENT,
            LoadError::Corrupt => Errno::EIO,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoadError::NotFound => "the cache does not have the page",
            LoadError::Corrupt => "what the cache has of the page is corrupt",
        })
    }
}

impl core::error::Error for LoadError {}

/// The result of a writeback.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reclaimed {
    /// Pages that are on their devices now, and not in the cache any more.
    pub written: u64,
    /// Pages whose write failed; they stay in the cache.
    pub failed: u64,
    /// Pages that were skipped: they were in use, or could not be written back.
    pub left: u64,
}

impl Reclaimed {
    pub(crate) fn add(&mut self, other: Reclaimed) {
        self.written += other.written;
        self.failed += other.failed;
        self.left += other.left;
    }
}

/// The next step of the background thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing, until the event is notified.
    Idle,
    /// More work, at once.
    Again,
    /// More work, but the last step wrote nothing: after a while.
    Later,
}
