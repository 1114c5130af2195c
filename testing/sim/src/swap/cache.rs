//! The interface of a cache under test.

use std::sync::Arc;

use units::{Cpu, Page};

use super::FaultyDevice;

/// The number of areas in a test.
pub const AREAS: usize = 2;
/// Pages of an area in a test.
pub const PAGES: u64 = 64;
/// The frames of a cache without another limit: more than it needs.
pub const FRAMES: u32 = 512;
/// The number of memcgs in a test.
pub const MEMCGS: usize = 3;

/// A page of an area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SwapPage {
    /// The number of the area, below [`AREAS`].
    pub area: usize,
    /// The page.
    pub offset: u64,
}

/// The reason for a refused store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// The cache is disabled.
    Disabled,
    /// The area is not on, or has no such page.
    NoArea,
    /// The compressed page is larger than the limit.
    TooLarge,
    /// The page is incompressible, and its memcg forbids writeback.
    Incompressible,
    /// The cache is full.
    PoolLimit,
    /// The memcg is at its limit.
    MemcgLimit,
    /// Memory is out.
    NoMemory,
    /// Entries are out.
    NoEntry,
}

/// The result of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The page.
    Page,
    /// The cache does not have the page; the device may.
    Nothing,
    /// The stored page is damaged.
    Corrupt,
}

/// The result of a reclaim, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reclaimed {
    /// Pages written back and removed from memory.
    pub written: u64,
    /// Pages that stay because their write failed.
    pub failed: u64,
    /// Pages that another thread was using.
    pub skipped: u64,
}

/// A setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Whether the cache takes pages.
    Enabled(bool),
    /// The codec, by its number.
    Compressor(usize),
    /// The most bytes of the pool; 0 for [`FRAMES`].
    MaxPool(u64),
    /// A full cache refuses pages until the pool is at this percentage of its limit.
    Accept(u32),
    /// The largest compressed size, in percent of a page; 100 for no limit.
    Ratio(u32),
    /// Whether a load removes the page.
    Exclusive(bool),
    /// Whether the cache takes same-filled pages.
    SameFilled(bool),
    /// Whether the cache takes pages that are not same-filled.
    NonSameFilled(bool),
    /// Whether the shrinker is on.
    Shrinker(bool),
    /// The most writes under way.
    InFlight(u32),
    /// The most bytes of a memcg; `u64::MAX` for no limit.
    MemcgMax(usize, u64),
    /// Whether a memcg's pages may be written back.
    MemcgWriteback(usize, bool),
}

/// The counters of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Pages in the cache.
    pub stored: u64,
    /// Bytes of memory of the pool.
    pub pool_bytes: u64,
    /// Pages written back so far.
    pub written_back: u64,
    /// Stores that replaced a page.
    pub duplicates: u64,
    /// Stores that were refused for any reason.
    pub refused: u64,
    /// Stores that found the pool at its limit.
    pub limit_hits: u64,
    /// Frames that compaction gained so far.
    pub compacted: u64,
    /// Pages of each memcg.
    pub memcg_pages: [u64; MEMCGS],
    /// Bytes each memcg is charged with.
    pub memcg_bytes: [u64; MEMCGS],
}

/// A compressed cache in front of swap devices. Any number of threads may call it at once.
pub trait Cache: Send + Sync {
    /// Turns an area of [`PAGES`] pages on, in front of `device`. An error is an errno.
    ///
    /// # Errors
    /// `EBUSY` if the area is on.
    fn swapon(&self, area: usize, device: Arc<FaultyDevice>) -> Result<(), i32>;

    /// Turns an area off.
    ///
    /// # Errors
    /// `EBUSY` while the cache has pages of the area.
    fn swapoff(&self, area: usize) -> Result<(), i32>;

    /// Stores a page.
    ///
    /// # Errors
    /// The reason for the refusal. The previous page is then gone, too, and no write of it is under
    /// way.
    fn store(
        &self,
        cpu: Cpu,
        swap_page: SwapPage,
        memcg: usize,
        page: &Page,
    ) -> Result<(), Refusal>;

    /// Loads a page.
    fn load(&self, cpu: Cpu, swap_page: SwapPage, page: &mut Page) -> Found;

    /// Drops the page.
    fn invalidate_page(&self, cpu: Cpu, swap_page: SwapPage);

    /// Drops all pages of the area.
    fn invalidate_area(&self, cpu: Cpu, area: usize);

    /// Writes up to `pages` of the oldest pages to their devices.
    fn reclaim(&self, cpu: Cpu, pages: u64) -> Reclaimed;

    /// Runs a step of the background worker. True if more work is left.
    fn work(&self) -> bool;

    /// Runs the shrinker, if it is on, for up to `pages` pages.
    fn shrink(&self, cpu: Cpu, pages: u64);

    /// Moves objects together. A cache without a pool has nothing to do.
    fn compact(&self, cpu: Cpu) {
        let _ = cpu;
    }

    /// Recompresses every page that no other thread uses. A cache without codecs has nothing to do.
    fn recompress(&self, cpu: Cpu) {
        let _ = cpu;
    }

    /// Changes a setting.
    fn set(&self, policy: Policy);

    /// Takes frames away until the cache can get `frames` more; `u32::MAX` gives all back.
    fn leave_frames(&self, frames: u32);

    /// The counters. No other thread may use the cache meanwhile.
    fn totals(&self) -> Totals;

    /// Checks the structures. No other thread may use the cache meanwhile.
    ///
    /// # Panics
    /// The message names the contradiction.
    fn validate(&self);
}
