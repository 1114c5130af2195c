//! Memcgs: whose pages they are, how much of the pool they may take, and whether they may go to
//! a device (memory.zswap.max and memory.zswap.writeback of Linux's control groups).

use alloc::{string::String, sync::Arc};

use sync::PerCpuCounters;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::Cpu;

use crate::lru::Lru;

/// Memcgs there can be at once.
pub const MAX_MEMCGS: usize = 64;

/// A memcg of a cache, by which pages are stored. Clones are the same memcg.
#[derive(Clone)]
pub struct Memcg(pub(crate) Arc<MemcgState>);

pub(crate) struct MemcgState {
    pub(crate) number: u8,
    name: String,
    /// Bytes; `u64::MAX` for any number.
    max: AtomicU64,
    writeback: AtomicBool,
    /// It has been removed, or is just being.
    gone: AtomicBool,
    counts: PerCpuCounters<3>,
    pub(crate) lru: Lru,
    /// Pages read from the device since the shrinker last looked.
    read_back: AtomicU64,
}

const PAGES: usize = 0;
const BYTES: usize = 1;
const WRITTEN: usize = 2;

impl Memcg {
    pub(crate) fn new(number: u8, name: &str, cpus: usize) -> Memcg {
        Memcg(Arc::new(MemcgState {
            number,
            name: name.into(),
            max: AtomicU64::new(u64::MAX),
            writeback: AtomicBool::new(true),
            gone: AtomicBool::new(false),
            counts: PerCpuCounters::new(cpus),
            lru: Lru::new(cpus),
            read_back: AtomicU64::new(0),
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The most bytes of objects it may have; `u64::MAX` for any number.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max.load(Ordering::Relaxed)
    }

    /// Allows it at most `bytes` of objects from now on. What is there stays.
    pub fn set_max(&self, bytes: u64) {
        self.0.max.store(bytes, Ordering::Relaxed);
    }

    /// May its pages go to a device?
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.0.writeback.load(Ordering::Relaxed)
    }

    /// Says whether its pages may go to a device from now on: written back from the cache, or
    /// because the cache refused them.
    pub fn set_writeback(&self, allowed: bool) {
        self.0.writeback.store(allowed, Ordering::Relaxed);
    }

    /// Bytes of its objects now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.counts.sum(BYTES)
    }

    /// Its pages in the cache now.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.0.counts.sum(PAGES)
    }

    /// Its pages that were written back so far.
    #[must_use]
    pub fn written_back(&self) -> u64 {
        self.0.counts.sum(WRITTEN)
    }

    pub(crate) fn add(&self, cpu: Cpu, pages: i64, bytes: i64) {
        self.0.counts.add(cpu, PAGES, pages);
        if bytes != 0 {
            self.0.counts.add(cpu, BYTES, bytes);
        }
    }

    pub(crate) fn count_written(&self, cpu: Cpu, pages: i64) {
        self.0.counts.add(cpu, WRITTEN, pages);
    }

    /// A page of it was read from the device.
    pub(crate) fn count_read_back(&self, pages: u64) {
        self.0.read_back.fetch_add(pages, Ordering::Relaxed);
    }

    /// Takes from the pages that were read from the device, at most `most` of them, and tells how
    /// many these were.
    pub(crate) fn take_read_back(&self, most: u64) -> u64 {
        let rest = |count: u64| Some(count.saturating_sub(most));
        let before = self.0.read_back.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        before.unwrap_or(0).min(most)
    }

    /// Pages are taken of it no more, or again. Whoever pinned later knows.
    pub(crate) fn set_gone(&self, gone: bool) {
        self.0.gone.store(gone, Ordering::Relaxed);
    }

    /// Whether an object of `bytes` would be one too many. Linux asks before it knows how many
    /// bytes there are; so do we, for one.
    pub(crate) fn is_full(&self) -> bool {
        let max = self.max();
        self.0.gone.load(Ordering::Relaxed) || max != u64::MAX && self.bytes() >= max
    }
}
