//! The statistics of an engine.

use sync::atomic::Ordering;
use units::{Cpu, PAGE_SIZE};

use crate::area::Area;
use crate::counts::Count;
use crate::engine::Zswap;
use crate::entry::ENTRY_BYTES;
use crate::{MAX_TYPES, SwapType};

/// A snapshot of the statistics of an engine. The unit is pages unless a field says bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Pages in the cache.
    pub stored_pages: u64,
    /// Same-filled pages in the cache.
    pub same_filled_pages: u64,
    /// Pages in the cache that did not shrink.
    pub incompressible_pages: u64,
    /// Pages of areas whose contents could not be right when the cache was recovered: loads of them
    /// fail until they are stored anew or invalidated.
    pub lost_pages: u64,
    /// Pages in the cache that are parts of packs.
    pub packed_pages: u64,
    /// Bytes of all objects; of a pack, the shares of the pages that are left.
    pub compressed_bytes: u64,
    /// Bytes of the pool's frames.
    pub pool_bytes: u64,
    /// The limit of the pool in bytes.
    pub max_pool_bytes: u64,
    /// Bytes of entries, packs and indexes.
    pub overhead_bytes: u64,
    /// Frames that compaction of the pool gained so far.
    pub compacted_pages: u64,
    /// Pages dropped so far because their user had freed them: see [`Zswap::sweep`].
    pub swept: u64,
    /// Pages stored so far.
    pub stores: u64,
    /// Pages loaded from the cache so far.
    pub loads: u64,
    /// Stores that found the pool at its limit.
    pub pool_limit_hit: u64,
    /// Stores that replaced a page.
    pub duplicate_entry: u64,
    /// Stores that found no space and wrote other pages back.
    pub writeback_attempted: u64,
    /// Stores that found space after the writeback of other pages.
    pub saved_by_writeback: u64,
    /// Pages written back so far.
    pub written_back_pages: u64,
    /// Pages whose writeback failed so far.
    pub writeback_failed: u64,
    /// Pages on their way to devices now.
    pub outstanding_writebacks: u64,
    /// Times when a writeback was refused because the limit of pages under way was reached.
    pub writebacks_refused: u64,
    /// Pages that [`crate::SwapDevice`] sent to devices because the cache refused them.
    pub through: u64,
    /// Pages that [`crate::SwapDevice`] could not send to a device, because the write failed.
    pub through_failed: u64,
    /// Pages that [`crate::SwapDevice`] read from devices.
    pub read_back: u64,
    /// Pages that [`crate::SwapDevice`] could not read from a device. A page counts at each read.
    pub read_back_failed: u64,
    /// Pages among them that were not on the device as they were written.
    pub read_back_changed: u64,
    /// Pages that devices were asked to read or to write so far.
    pub asked: u64,
    /// Pages among them that were answered, well or not.
    pub answered: u64,
    /// Pages on devices now.
    pub on_device: u64,
    /// Pages in the cache that were recompressed, before or after the last recovery.
    pub warm_pages: u64,
    /// Pages recompressed so far.
    pub recompressed: u64,
    /// Bytes of the pool that this saved so far, before objects were moved together.
    pub recompress_saved: u64,
    /// Pages that recompression would not have made smaller so far.
    pub recompress_vain: u64,
    /// Times so far when a page was left: there was no room, or it changed meanwhile.
    pub recompress_left: u64,
    /// CPU time of recompression so far, in nanoseconds.
    pub recompress_ns: u64,
    /// Loads of recompressed pages so far.
    pub warm_loads: u64,
    /// Loads among them within [`crate::Policy::auto_age`] after the page was recompressed.
    pub warm_loads_soon: u64,
    /// The age in seconds at which pages are recompressed now; 0 if they are not.
    pub recompress_age: u64,
    /// Objects that did not decompress.
    pub decompress_fail: u64,
    /// Stores refused while disabled.
    pub reject_disabled: u64,
    /// Stores refused because a limit was reached.
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

/// The traffic of pages so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Pages that the cache stored, plus pages that it loaded.
    pub served: u64,
    /// Pages that neither the cache nor a device took.
    pub refused: u64,
}

/// How the devices of the areas answer, in pages so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DeviceAnswers {
    /// As [`Stats::asked`].
    pub asked: u64,
    /// As [`Stats::answered`].
    pub answered: u64,
    /// As [`Stats::read_back_failed`].
    pub reads: u64,
    /// As [`Stats::read_back_changed`].
    pub changed: u64,
    /// Pages whose write failed, alone or with others. They stayed in the cache or with the client.
    pub writes: u64,
}

/// How the device of an area answers, in pages since the area is on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answers {
    /// Pages that it was asked to read or to write.
    pub asked: u64,
    /// Pages among them that were answered, well or not.
    pub answered: u64,
}

/// A snapshot of the statistics of an area.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AreaStats {
    /// The size of the area in pages.
    pub pages: u64,
    /// Pages in the cache, lost ones among them.
    pub cached: u64,
    /// Pages on the device and not in the cache.
    pub on_device: u64,
}

impl Zswap {
    /// The layout of what outlives the process.
    #[must_use]
    pub fn layout(&self) -> u32 {
        self.record.layout()
    }

    /// A snapshot of the statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let count = |which| self.counts.sum(which);
        let areas = self.areas();
        let areas = || areas.iter().filter_map(|swap| self.area(*swap));
        let indexes: u64 = areas().map(|area| area.index.bytes() + area.index.table_bytes()).sum();
        let packs = u64::from(self.packs.ever_used()) * objects::ENTRY_BYTES;
        Stats {
            stored_pages: count(Count::Pages),
            same_filled_pages: count(Count::SameFilled),
            incompressible_pages: count(Count::Incompressible),
            lost_pages: count(Count::Lost),
            packed_pages: count(Count::Packed),
            compressed_bytes: count(Count::Bytes),
            pool_bytes: self.pool().frames() * PAGE_SIZE as u64,
            max_pool_bytes: self.policy.max_frames() * PAGE_SIZE as u64,
            overhead_bytes: self.entries.touched() * ENTRY_BYTES + packs + indexes,
            compacted_pages: self.pool().frames_compacted(),
            swept: count(Count::Swept),
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
            through_failed: count(Count::ThroughFailed),
            read_back: count(Count::ReadBack),
            read_back_failed: count(Count::ReadBackFailed),
            read_back_changed: count(Count::ReadBackChanged),
            asked: count(Count::Asked),
            answered: count(Count::Answered),
            on_device: areas().map(|area| area.count_on_device()).sum(),
            warm_pages: self.warm_pages(),
            recompressed: count(Count::Recompressed),
            recompress_saved: count(Count::RecompressSaved),
            recompress_vain: count(Count::RecompressVain),
            recompress_left: count(Count::RecompressLeft),
            recompress_ns: count(Count::RecompressNanoseconds),
            warm_loads: count(Count::WarmLoads),
            warm_loads_soon: count(Count::WarmLoadsSoon),
            recompress_age: self.recompress_age(),
            decompress_fail: count(Count::DecompressFail),
            reject_disabled: count(Count::RejectDisabled),
            reject_reclaim_fail: count(Count::RejectReclaimFail),
            reject_alloc_fail: count(Count::RejectAllocFail),
            reject_entry_fail: count(Count::RejectEntryFail),
            reject_compress_fail: count(Count::RejectCompressFail),
            reject_compress_poor: count(Count::RejectCompressPoor),
        }
    }

    /// The traffic of pages so far. The call allocates no memory, so a monitor can use it when
    /// memory is out.
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

    /// How the devices answer. The call allocates no memory, as [`Zswap::traffic`].
    #[must_use]
    pub fn device_answers(&self) -> DeviceAnswers {
        let count = |which| self.counts.sum(which);
        // Read first, so that no page seems to be answered before it was asked for.
        let answered = count(Count::Answered);
        DeviceAnswers {
            asked: count(Count::Asked),
            answered,
            reads: count(Count::ReadBackFailed),
            changed: count(Count::ReadBackChanged),
            writes: count(Count::WritebackFailed) + count(Count::ThroughFailed),
        }
    }

    /// How the device of each area answers, by the number of the area. The call allocates no
    /// memory, as [`Zswap::traffic`].
    #[must_use]
    pub fn answers(&self) -> [Answers; MAX_TYPES] {
        let reader = self.readers.enter(Cpu(0));
        core::array::from_fn(|number| {
            let Some(area) = self.areas[number].get(&reader) else { return Answers::default() };
            // In this order, as above.
            let answered = area.answered.load(Ordering::Relaxed);
            Answers { asked: area.asked.load(Ordering::Relaxed), answered }
        })
    }

    /// Counts pages that the device of an area is asked for now.
    pub(crate) fn count_asked(&self, cpu: Cpu, area: &Area, pages: i64) {
        self.counts.add(cpu, Count::Asked, pages);
        area.asked.fetch_add(pages.cast_unsigned(), Ordering::Relaxed);
    }

    /// Counts that it has answered for them.
    pub(crate) fn count_answered(&self, cpu: Cpu, area: &Area, pages: i64) {
        self.counts.add(cpu, Count::Answered, pages);
        area.answered.fetch_add(pages.cast_unsigned(), Ordering::Relaxed);
    }

    /// Statistics of an area; `None` if it is off.
    #[must_use]
    pub fn area_stats(&self, swap: SwapType) -> Option<AreaStats> {
        let area = self.area(swap)?;
        let (pages, cached) = (area.pages, area.index.count());
        Some(AreaStats { pages, cached, on_device: area.count_on_device() })
    }
}
