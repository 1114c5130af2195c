//! The counters of an engine, kept per CPU.

use sync::PerCpuCounters;
use units::Cpu;

macro_rules! counts { ($($name:ident, $text:literal;)*) => {
    /// One counter or gauge. A gauge also goes down.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(usize)]
    pub(crate) enum Count {
        $(#[doc = $text] $name,)*
    }

    const COUNTS: usize = [$(Count::$name),*].len();
} }

counts! {
    Pages, "Gauge: pages in the cache.";
    SameFilled, "Gauge: same-filled pages among them.";
    Incompressible, "Gauge: pages among them that would not shrink.";
    Packed, "Gauge: pages among them that are parts of packs.";
    Lost, "Gauge: pages whose contents could not be right when the cache was recovered.";
    Bytes, "Gauge: bytes of all objects; of a pack, the shares of the pages that are left.";
    Swept, "Pages that were dropped because their user had freed them.";
    Stores, "Pages that were stored.";
    Loads, "Pages that were loaded from the cache.";
    PoolLimitHit, "Stores that found the pool as large as it may be.";
    Duplicate, "Stores that replaced a page.";
    WritebackAttempted, "Stores that found no space and wrote others back to make some.";
    SavedByWriteback, "Stores among them that then found space.";
    WrittenBack, "Pages that were written back.";
    WritebackFailed, "Pages whose writing back failed; they stayed.";
    Through, "Pages that went to the device because the cache refused them.";
    ThroughFailed, "Pages that neither the cache nor the device took, because a write failed.";
    Asked, "Pages that devices were asked to read or to write.";
    Answered, "Pages among them that the devices have answered for, well or not.";
    ReadBack, "Pages that were read from the device.";
    ReadBackFailed, "Pages whose read from the device failed.";
    ReadBackChanged, "Pages among them that the device had changed.";
    NoBuffer, "Times when all that may be written back at once was under way already.";
    Recompressed, "Pages that were recompressed.";
    RecompressSaved, "Bytes of slots in the pool that this saved.";
    RecompressVain, "Pages that recompression would not make smaller.";
    RecompressLeft, "Times when a page was left for lack of room, or because it changed meanwhile.";
    RecompressNanoseconds, "CPU time of recompression in nanoseconds.";
    WarmLoads, "Loads of recompressed pages.";
    WarmLoadsSoon, "Loads among them soon after the page was recompressed.";
    DecompressFail, "Objects that did not decompress to a page.";
    RejectDisabled, "Stores refused while the cache was disabled.";
    RejectReclaimFail, "Stores refused for the pool's or the memcg's limit.";
    RejectAllocFail, "Stores refused because the page allocator had no frame.";
    RejectEntryFail, "Stores refused because there was no entry or no node of the index.";
    RejectCompressFail, "Stores refused because the page did not shrink, or not by any codec.";
    RejectCompressPoor, "Stores refused because the page did not shrink enough.";
}

/// The counters of an engine.
pub(crate) struct Counts(PerCpuCounters<COUNTS>);

impl Counts {
    pub(crate) fn new(cpus: usize) -> Counts {
        Counts(PerCpuCounters::new(cpus))
    }

    #[inline]
    pub(crate) fn add(&self, cpu: Cpu, which: Count, amount: i64) {
        self.0.add(cpu, which as usize, amount);
    }

    pub(crate) fn sum(&self, which: Count) -> u64 {
        self.0.sum(which as usize)
    }
}
