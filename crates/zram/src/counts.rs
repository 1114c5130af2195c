//! The counters of a device, kept per CPU.

use sync::PerCpuCounters;
use units::Cpu;

/// One counter or gauge. A gauge also goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Count {
    /// Pages read since the device was initialised.
    Reads,
    /// Pages written.
    Writes,
    /// Page reads that failed.
    FailedReads,
    /// Page writes that failed.
    FailedWrites,
    /// Requests that passed the end of the device.
    InvalidIo,
    /// Pages discarded or zeroed away, empty ones too.
    NotifyFree,
    /// Gauge: pages with contents.
    PagesStored,
    /// Gauge: same-filled pages, zero-filled ones among them.
    SamePages,
    /// Gauge: zero-filled pages.
    ZeroPages,
    /// Gauge: pages stored uncompressed.
    HugePages,
    /// Pages stored uncompressed since the device was initialised.
    HugePagesSince,
    /// Gauge: bytes of all objects.
    ComprBytes,
    /// Gauge: pages on the backing device.
    WrittenBackPages,
    /// Blocks read from the backing device.
    WritebackReads,
    /// Blocks written to the backing device.
    WritebackWrites,
    /// Gauge: pages whose contents could not be recovered.
    LostPages,
    /// Gauge: pages in extents.
    PackedPages,
    /// Gauge: pages that name an object which others may name, too; not those in extents.
    SharedPages,
}

const COUNTS: usize = Count::SharedPages as usize + 1;

/// The counters of a device.
pub(crate) struct Counts(PerCpuCounters<COUNTS>);

impl Counts {
    pub(crate) fn new(cpus: usize) -> Counts {
        Counts(PerCpuCounters::new(cpus))
    }

    #[inline]
    pub(crate) fn add(&self, cpu: Cpu, which: Count, amount: i64) {
        self.0.add(cpu, which as usize, amount);
    }

    /// Counts a page that was read, and a failure if that failed.
    #[inline]
    pub(crate) fn add_read<E>(&self, cpu: Cpu, result: Result<(), E>) -> Result<(), E> {
        self.add(cpu, Count::Reads, 1);
        result.inspect_err(|_| self.add(cpu, Count::FailedReads, 1))
    }

    /// Counts a page that was written, and a failure if that failed.
    #[inline]
    pub(crate) fn add_write<E>(&self, cpu: Cpu, result: Result<(), E>) -> Result<(), E> {
        self.add(cpu, Count::Writes, 1);
        result.inspect_err(|_| self.add(cpu, Count::FailedWrites, 1))
    }

    pub(crate) fn sum(&self, which: Count) -> u64 {
        self.0.sum(which as usize)
    }

    /// Sets all counters to zero. Call it only while no thread counts.
    pub(crate) fn clear(&self) {
        for which in 0..COUNTS {
            self.0.clear(which);
        }
    }
}
