//! What an engine tells of itself.

use units::PAGE_SIZE;

use crate::SwapType;
use crate::counts::Count;
use crate::engine::Zswap;
use crate::entry::ENTRY_BYTES;
use crate::index::Index;

/// Counts of an engine, of the moment. Pages, unless it says bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// In the cache.
    pub stored_pages: u64,
    /// Same-filled ones among them.
    pub same_filled_pages: u64,
    /// Ones that would not shrink among them.
    pub incompressible_pages: u64,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// Bytes of the pool's frames.
    pub pool_bytes: u64,
    /// Bytes the pool may have.
    pub max_pool_bytes: u64,
    /// Bytes of entries and indexes.
    pub overhead_bytes: u64,
    /// Stored so far.
    pub stores: u64,
    /// Loaded from the cache so far.
    pub loads: u64,
    /// Stores that found the pool as large as it may be.
    pub pool_limit_hit: u64,
    /// Stores that replaced a page.
    pub duplicate_entry: u64,
    /// Stores that found no space and wrote others back.
    pub writeback_attempted: u64,
    /// Stores that found space after writing others back.
    pub saved_by_writeback: u64,
    /// Written back so far.
    pub written_back_pages: u64,
    /// Writing back failed so far.
    pub writeback_failed: u64,
    /// On their way to devices now.
    pub outstanding_writebacks: u64,
    /// Times when as much was under way as may be.
    pub writebacks_refused: u64,
    /// Sent to devices by [`crate::SwapDevice`] because the cache refused them.
    pub through: u64,
    /// Read from devices by [`crate::SwapDevice`].
    pub read_back: u64,
    /// On devices now.
    pub on_device: u64,
    /// Objects that did not decompress.
    pub decompress_fail: u64,
    /// Stores refused while disabled.
    pub reject_disabled: u64,
    /// Stores refused for a limit.
    pub reject_reclaim_fail: u64,
    /// Stores refused because there was no frame.
    pub reject_alloc_fail: u64,
    /// Stores refused because there was no entry.
    pub reject_entry_fail: u64,
    /// Stores refused because the page did not shrink.
    pub reject_compress_fail: u64,
    /// Stores refused because the page did not shrink enough.
    pub reject_compress_poor: u64,
}

/// What has become of pages so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Pages stored, and pages loaded, by the cache.
    pub served: u64,
    /// Pages that neither the cache nor a device took.
    pub refused: u64,
}

/// Counts of an area, of the moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AreaStats {
    /// Pages it has in all.
    pub pages: u64,
    /// Pages in the cache.
    pub cached: u64,
    /// Pages on the device and not in the cache.
    pub on_device: u64,
}

impl<I: Index> Zswap<I> {
    /// Statistics, of the moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let count = |which| self.counts.sum(which);
        let areas = self.areas();
        let areas = || areas.iter().filter_map(|swap| self.area(*swap));
        let indexes: u64 = areas().map(|area| area.index.bytes()).sum();
        Stats {
            stored_pages: count(Count::Pages),
            same_filled_pages: count(Count::SameFilled),
            incompressible_pages: count(Count::Incompressible),
            compressed_bytes: count(Count::Bytes),
            pool_bytes: self.pool().frames() * PAGE_SIZE as u64,
            max_pool_bytes: self.policy.max_frames() * PAGE_SIZE as u64,
            overhead_bytes: self.entries.touched() * ENTRY_BYTES + indexes,
            stores: count(Count::Stores),
            loads: count(Count::Loads),
            pool_limit_hit: count(Count::PoolLimitHit),
            duplicate_entry: count(Count::Duplicate),
            writeback_attempted: count(Count::WritebackAttempted),
            saved_by_writeback: count(Count::SavedByWriteback),
            written_back_pages: count(Count::WrittenBack),
            writeback_failed: count(Count::WritebackFailed),
            outstanding_writebacks: self.evictors.under_way(),
            writebacks_refused: count(Count::NoBuffer),
            through: count(Count::Through),
            read_back: count(Count::ReadBack),
            on_device: areas().map(|area| area.count_on_device()).sum(),
            decompress_fail: count(Count::DecompressFail),
            reject_disabled: count(Count::RejectDisabled),
            reject_reclaim_fail: count(Count::RejectReclaimFail),
            reject_alloc_fail: count(Count::RejectAllocFail),
            reject_entry_fail: count(Count::RejectEntryFail),
            reject_compress_fail: count(Count::RejectCompressFail),
            reject_compress_poor: count(Count::RejectCompressPoor),
        }
    }

    /// What has become of pages so far. Takes no memory: it is for those who watch while there is
    /// none.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let count = |which| self.counts.sum(which);
        let refused: u64 = [
            Count::RejectDisabled,
            Count::RejectReclaimFail,
            Count::RejectAllocFail,
            Count::RejectEntryFail,
            Count::RejectCompressFail,
            Count::RejectCompressPoor,
        ]
        .map(count)
        .iter()
        .sum();
        Traffic {
            served: count(Count::Stores) + count(Count::Loads),
            refused: refused.saturating_sub(count(Count::Through)),
        }
    }

    /// Statistics of an area; `None` if it is off.
    #[must_use]
    pub fn area_stats(&self, swap: SwapType) -> Option<AreaStats> {
        let area = self.area(swap)?;
        let (pages, cached) = (area.pages, area.index.count());
        Some(AreaStats { pages, cached, on_device: area.count_on_device() })
    }
}
