//! How a store or a load may end, other than well.

use core::fmt;

use control::Errno;

/// Why a page was not taken into the cache. What the cache held of it before is gone, and its owner
/// may write the page to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reject {
    /// The area is off, or the offset lies beyond its end.
    NoArea,
    /// The cache takes no pages (`enabled`), or none of this kind.
    Disabled,
    /// The pool is as large as it may be, or was a moment ago.
    PoolLimit,
    /// The memcg has as much as it may have, or was removed.
    MemcgLimit,
    /// The page allocator has no frame.
    NoMemory,
    /// There is no entry, or no node of the index, for the page.
    NoEntry,
    /// The page would not shrink.
    Incompressible,
    /// The page did not shrink enough (`max_compression_ratio`).
    Poor,
}

impl Reject {
    /// The error number of it; those of Linux's zswap of 2013 where that had one.
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

    /// Is there no memory for the page now, though it may be taken?
    pub(crate) const fn is_for_memory(self) -> bool {
        matches!(self, Reject::NoMemory | Reject::NoEntry)
    }

    /// Might there be space once others were written back?
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

/// Why a page did not come out of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The cache does not have it: the device does, if anybody.
    NotFound,
    /// What the cache has does not decompress to a page. It stays.
    Corrupt,
}

impl LoadError {
    /// The error number Linux has for it.
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

/// What came of writing pages back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reclaimed {
    /// Pages that are on their devices now, and no more in the cache.
    pub written: u64,
    /// Pages whose writing failed; they stayed.
    pub failed: u64,
    /// Pages that were looked at and left: somebody used them, or nothing could be done.
    pub left: u64,
}

impl Reclaimed {
    pub(crate) fn add(&mut self, other: Reclaimed) {
        self.written += other.written;
        self.failed += other.failed;
        self.left += other.left;
    }
}

/// What the background has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Nothing, until the event is notified.
    Idle,
    /// More of it, at once.
    Again,
    /// More of it, but nothing came of it just now: after a while.
    Later,
}
