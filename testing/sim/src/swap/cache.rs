//! What is tested.

use std::sync::Arc;

use units::{Cpu, Page};

use super::FaultyDevice;

/// Areas there may be in a test.
pub const AREAS: usize = 2;
/// Pages of an area in a test.
pub const PAGES: u64 = 64;
/// Frames of memory that a cache may have if no other limit is set: more than it needs.
pub const FRAMES: u32 = 512;
/// Memcgs there may be in a test.
pub const MEMCGS: usize = 3;

/// A page of an area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SwapPage {
    /// The number of the area, below [`AREAS`].
    pub area: usize,
    /// The page.
    pub offset: u64,
}

/// Why a page was not taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    /// The cache takes nothing at present.
    Disabled,
    /// The area is not on, or has no such page.
    NoArea,
    /// It did not shrink as far as it must.
    TooLarge,
    /// It did not shrink, and must not go to the device either, so that it would stay.
    Incompressible,
    /// The cache is full.
    PoolLimit,
    /// The memcg has had its share.
    MemcgLimit,
    /// No memory could be had.
    NoMemory,
    /// No entry was left.
    NoEntry,
}

/// What a load found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The page.
    Page,
    /// It is not here: go to the device.
    Nothing,
    /// It cannot be read.
    Corrupt,
}

/// What a reclaim did, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reclaimed {
    /// Written back, and no more in memory.
    pub written: u64,
    /// Their write failed; they stay.
    pub failed: u64,
    /// Somebody else was at them.
    pub skipped: u64,
}

/// A setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Are pages taken at all?
    Enabled(bool),
    /// The codec, by its number among those there are.
    Compressor(usize),
    /// The most bytes; 0 for [`FRAMES`].
    MaxPool(u64),
    /// Once full, nothing is taken before there is no more than this share of it, in percent.
    Accept(u32),
    /// A page must shrink to this many percent; 100 for none.
    Ratio(u32),
    /// Does a load take the page out?
    Exclusive(bool),
    /// Are same-filled pages taken?
    SameFilled(bool),
    /// Are others?
    NonSameFilled(bool),
    /// Is there a shrinker?
    Shrinker(bool),
    /// Writes under way at most.
    InFlight(u32),
    /// The most bytes of a memcg; `u64::MAX` for no limit.
    MemcgMax(usize, u64),
    /// May a memcg's pages be written back?
    MemcgWriteback(usize, bool),
}

/// What a cache counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Pages in it.
    pub stored: u64,
    /// Bytes of memory they take.
    pub pool_bytes: u64,
    /// Pages that were ever written back.
    pub written_back: u64,
    /// Stores that replaced a page.
    pub duplicates: u64,
    /// Stores that were refused, whatever for.
    pub refused: u64,
    /// Stores that found the pool at its limit.
    pub limit_hits: u64,
    /// Pages of each memcg.
    pub memcg_pages: [u64; MEMCGS],
    /// Bytes each memcg is charged with.
    pub memcg_bytes: [u64; MEMCGS],
}

/// A compressed cache in front of swap devices. Any number of threads may call it at once.
pub trait Cache: Send + Sync {
    /// Turns an area on, of [`PAGES`] pages in front of `device`. Gives the kernel's error number
    /// if it cannot be.
    ///
    /// # Errors
    /// `EBUSY` if it is on.
    fn swapon(&self, area: usize, device: Arc<FaultyDevice>) -> Result<(), i32>;

    /// Turns an area off.
    ///
    /// # Errors
    /// `EBUSY` while it has pages here.
    fn swapoff(&self, area: usize) -> Result<(), i32>;

    /// Puts a page in.
    ///
    /// # Errors
    /// Why not; the page that was there before is gone then too, and nothing of it is being
    /// written to the device.
    fn store(
        &self,
        cpu: Cpu,
        swap_page: SwapPage,
        memcg: usize,
        page: &Page,
    ) -> Result<(), Refusal>;

    /// Looks for a page.
    fn load(&self, cpu: Cpu, swap_page: SwapPage, page: &mut Page) -> Found;

    /// The page is needed no more.
    fn invalidate_page(&self, cpu: Cpu, swap_page: SwapPage);

    /// No page of the area is needed any more.
    fn invalidate_area(&self, cpu: Cpu, area: usize);

    /// Writes up to so many of the oldest pages to their devices.
    fn reclaim(&self, cpu: Cpu, pages: u64) -> Reclaimed;

    /// A step of the background worker. Tells whether there is more to do.
    fn work(&self) -> bool;

    /// Memory is short: gives up to so many pages back, if there is a shrinker.
    fn shrink(&self, cpu: Cpu, pages: u64);

    /// Changes a setting.
    fn set(&self, policy: Policy);

    /// Somebody else takes as many frames of memory as leave so many; `u32::MAX` gives all back.
    fn leave_frames(&self, frames: u32);

    /// What it counts, while nobody uses it.
    fn totals(&self) -> Totals;

    /// Looks its structures through, while nobody uses it.
    ///
    /// # Panics
    /// Says what contradicts what.
    fn validate(&self);
}
