//! Memcgs: the owners of pages, their limits in the pool, and whether their pages may go to a
//! device (memory.zswap.max and memory.zswap.writeback of Linux's control groups).

use alloc::{string::String, sync::Arc};

use sync::PerCpuCounters;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::Cpu;

use crate::lru::Lru;
use crate::record::{KeptMemcg, Record};

/// A memcg of a cache. Pages are stored for a memcg. Clones are the same memcg.
#[derive(Clone)]
pub struct Memcg(pub(crate) Arc<MemcgState>);

pub(crate) struct MemcgState {
    pub(crate) number: u8,
    name: String,
    /// Where the limit and the switch are kept.
    record: Record,
    /// The limit in bytes; `u64::MAX` for no limit.
    max: AtomicU64,
    writeback: AtomicBool,
    /// Set when the memcg was removed, or while it is being removed.
    gone: AtomicBool,
    counts: PerCpuCounters<6>,
    pub(crate) lru: Lru,
    /// Pages read from the device since the shrinker last looked.
    read_back: AtomicU64,
}

const PAGES: usize = 0;
const BYTES: usize = 1;
const WRITTEN: usize = 2;
const INCOMPRESSIBLE: usize = 3;
const STORED: usize = 4;
const LOADED: usize = 5;

impl Memcg {
    /// The memcg of `number`, as it is in the record.
    pub(crate) fn new(number: u8, kept: KeptMemcg, record: Record, cpus: usize) -> Memcg {
        let KeptMemcg { name, max, writeback } = kept;
        Memcg(Arc::new(MemcgState {
            number,
            name,
            record,
            max: AtomicU64::new(max),
            writeback: AtomicBool::new(writeback),
            gone: AtomicBool::new(false),
            counts: PerCpuCounters::new(cpus),
            lru: Lru::new(cpus),
            read_back: AtomicU64::new(0),
        }))
    }

    /// The name of the memcg.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The most bytes of objects that the memcg may have; `u64::MAX` for no limit.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max.load(Ordering::Relaxed)
    }

    /// Limits the memcg to `bytes` of objects from now on. Stored objects stay.
    pub fn set_max(&self, bytes: u64) {
        if !self.is_gone() {
            self.0.record.set_limit(self.0.number, bytes);
        }
        self.0.max.store(bytes, Ordering::Relaxed);
    }

    /// Whether the pages of the memcg may go to a device.
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.0.writeback.load(Ordering::Relaxed)
    }

    /// Sets whether pages of the memcg may go to a device from now on, by writeback or because the
    /// cache refused them.
    pub fn set_writeback(&self, allowed: bool) {
        if !self.is_gone() {
            self.0.record.set_writeback(self.0.number, allowed);
        }
        self.0.writeback.store(allowed, Ordering::Relaxed);
    }

    /// The bytes of the memcg's objects now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.counts.sum(BYTES)
    }

    /// The pages of the memcg in the cache now.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.0.counts.sum(PAGES)
    }

    /// The pages of the memcg that were written back so far.
    #[must_use]
    pub fn written_back(&self) -> u64 {
        self.0.counts.sum(WRITTEN)
    }

    /// The pages of the memcg that are in the cache as they are, because they did not shrink.
    #[must_use]
    pub fn incompressible(&self) -> u64 {
        self.0.counts.sum(INCOMPRESSIBLE)
    }

    /// The pages that were stored for the memcg so far.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.0.counts.sum(STORED)
    }

    /// The pages of the memcg that were loaded from the cache so far.
    #[must_use]
    pub fn loaded(&self) -> u64 {
        self.0.counts.sum(LOADED)
    }

    pub(crate) fn add(&self, cpu: Cpu, pages: i64, bytes: i64) {
        self.0.counts.add(cpu, PAGES, pages);
        if bytes != 0 {
            self.0.counts.add(cpu, BYTES, bytes);
        }
    }

    pub(crate) fn add_incompressible(&self, cpu: Cpu, pages: i64) {
        self.0.counts.add(cpu, INCOMPRESSIBLE, pages);
    }

    pub(crate) fn count_stored(&self, cpu: Cpu) {
        self.0.counts.add(cpu, STORED, 1);
    }

    /// Counts pages again as not stored: they will be stored anew.
    pub(crate) fn uncount_stored(&self, cpu: Cpu, pages: i64) {
        self.0.counts.add(cpu, STORED, -pages);
    }

    pub(crate) fn count_loaded(&self, cpu: Cpu, pages: i64) {
        self.0.counts.add(cpu, LOADED, pages);
    }

    pub(crate) fn count_written(&self, cpu: Cpu, pages: i64) {
        self.0.counts.add(cpu, WRITTEN, pages);
    }

    /// Counts pages of the memcg that were read from the device.
    pub(crate) fn count_read_back(&self, pages: u64) {
        self.0.read_back.fetch_add(pages, Ordering::Relaxed);
    }

    /// Subtracts at most `most` from the count of pages read from the device. Returns the
    /// subtracted number.
    pub(crate) fn take_read_back(&self, most: u64) -> u64 {
        let rest = |count: u64| Some(count.saturating_sub(most));
        let before = self.0.read_back.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        before.unwrap_or(0).min(most)
    }

    /// Refuses new pages of the memcg, or accepts them again. A thread that becomes a reader later
    /// sees the change.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.0.gone.store(gone, Ordering::Relaxed);
    }

    /// Whether another memcg may have the number.
    fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Relaxed)
    }

    /// Whether the memcg is at its limit or removed. As in Linux, the check comes before the size
    /// of the new object is known.
    pub(crate) fn is_full(&self) -> bool {
        let max = self.max();
        self.is_gone() || max != u64::MAX && self.bytes() >= max
    }
}
