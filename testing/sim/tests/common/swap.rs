//! The caches of swap areas under test, with the product's index or another one. research/ runs the
//! same tests with its indexes.
// Each test binary uses a part of it.
#![allow(dead_code)]

use std::sync::Arc;

use block::BlockDevice;
use pagealloc::{Frames, MemoryProvider, Zone, ZoneOptions};
use sim::swap::{
    Cache, FRAMES, FaultyDevice, Found, MEMCGS, PAGES, Policy, Reclaimed, Refusal, SwapPage, Totals,
};
use sync::Mutex;
use units::{Cpu, Frame, Page};
use zcomp::{Chosen, Params};
use zswap::index::{self, Flat, Index, MakeIndex};
use zswap::{AreaOptions, Key, LoadError, Memcg, Parts, Reject, SwapDevice, SwapType, Work, Zswap};

/// An index, by name; `None` is the product's.
pub type Kind = (&'static str, Option<MakeIndex>);

/// The indexes of the product.
pub const INDEXES: &[Kind] = &[(Flat::NAME, None)];

/// Wraps the device of an area.
pub type OverDevice = Box<dyn Fn(Arc<FaultyDevice>) -> Arc<dyn BlockDevice> + Send + Sync>;

/// A cache with the interface of the model.
pub struct Engine {
    pub zswap: Arc<Zswap>,
    pub frames: Arc<dyn Frames>,
    pub over_device: OverDevice,
    memcgs: Vec<Memcg>,
    /// Frames that are taken from the cache.
    taken: Mutex<Vec<Frame>>,
}

impl Engine {
    /// A cache with this index.
    pub fn new((_, index): Kind, cpus: usize) -> Engine {
        Engine::in_memory(index, cpus, Arc::new(host::Mmap))
    }

    /// A cache with the product's index, or another, in memory from `provider`.
    pub fn in_memory(
        index: Option<MakeIndex>,
        cpus: usize,
        provider: Arc<dyn MemoryProvider>,
    ) -> Engine {
        let zone =
            ZoneOptions { collapse: true, init_on_free: true, ..ZoneOptions::new(cpus, FRAMES) };
        let frames: Arc<dyn Frames> = Arc::new(Zone::new(&*provider, zone).expect("addresses"));
        let chosen = |name: &str| {
            let params = Params::default();
            let opened = zcomp::open(name, &params);
            let compressor = opened.map_err(|error| control::ControlError::invalid(error.0))?;
            Ok(Chosen { compressor, params })
        };
        let parts = Parts {
            frames: frames.clone(),
            kept: None,
            cpus,
            counting_cpus: cpus,
            codec: chosen(zcomp::DEFAULT_ALGORITHM).expect("it is known"),
            find_codec: Box::new(chosen),
            total_pages: u64::from(FRAMES),
            entries: 16 * FRAMES,
        };
        let zswap = match index {
            None => Zswap::new(provider, parts),
            Some(make) => Zswap::with_index(provider, parts, make),
        };
        let zswap = Arc::new(zswap.expect("there are addresses"));
        let memcg = |n| zswap.memcg(["default", "one", "two"][n]).expect("there are numbers");
        let memcgs = (0..MEMCGS).map(memcg).collect();
        let over_device = Box::new(|device_below| device_below as _);
        Engine { zswap, frames, over_device, memcgs, taken: Mutex::new(Vec::new()) }
    }

    /// Area `area` as a block device.
    pub fn device(&self, area: usize) -> Arc<SwapDevice> {
        Arc::new(SwapDevice::new(self.zswap.clone(), swap_type(area)))
    }

    fn key(swap_page: SwapPage) -> Key {
        Key { swap: swap_type(swap_page.area), offset: swap_page.offset }
    }
}

/// A cache with an index of this type.
pub fn with_index<I: Index>(cpus: usize) -> Engine {
    Engine::in_memory(Some(index::make::<I>), cpus, Arc::new(host::Mmap))
}

/// The type of an area of the model.
pub fn swap_type(area: usize) -> SwapType {
    SwapType::new(area).expect("there are enough")
}

/// Lets as many passes come by as a page that was just read needs to be recompressed.
pub fn recompress(zswap: &Zswap, cpu: Cpu) {
    for _ in 0..10 {
        let elapsed = u64::from(zswap.policy().auto_age()) * 1_000_000_000;
        while zswap.recompress_old(cpu, elapsed, &|| 0) {}
    }
}

fn refusal(reject: Reject) -> Refusal {
    match reject {
        Reject::NoArea => Refusal::NoArea,
        Reject::Disabled => Refusal::Disabled,
        Reject::PoolLimit => Refusal::PoolLimit,
        Reject::MemcgLimit => Refusal::MemcgLimit,
        Reject::NoMemory => Refusal::NoMemory,
        Reject::NoEntry => Refusal::NoEntry,
        Reject::Incompressible => Refusal::Incompressible,
        Reject::Poor => Refusal::TooLarge,
    }
}

impl Cache for Engine {
    fn swapon(&self, area: usize, device: Arc<FaultyDevice>) -> Result<(), i32> {
        let device = Some((self.over_device)(device));
        let options = AreaOptions { device, memcg: self.memcgs[0].clone() };
        self.zswap.swapon(swap_type(area), PAGES, options).map_err(|error| error.errno.0)
    }

    fn swapoff(&self, area: usize) -> Result<(), i32> {
        self.zswap.swapoff(swap_type(area)).map_err(|error| error.errno.0)
    }

    fn store(
        &self,
        cpu: Cpu,
        swap_page: SwapPage,
        memcg: usize,
        page: &Page,
    ) -> Result<(), Refusal> {
        self.zswap.store(cpu, Engine::key(swap_page), &self.memcgs[memcg], page).map_err(refusal)
    }

    fn load(&self, cpu: Cpu, swap_page: SwapPage, page: &mut Page) -> Found {
        match self.zswap.load(cpu, Engine::key(swap_page), page) {
            Ok(()) => Found::Page,
            Err(LoadError::NotFound) => Found::Nothing,
            Err(LoadError::Corrupt) => Found::Corrupt,
        }
    }

    fn invalidate_page(&self, cpu: Cpu, swap_page: SwapPage) {
        self.zswap.invalidate_page(cpu, Engine::key(swap_page));
    }

    fn invalidate_area(&self, cpu: Cpu, area: usize) {
        self.zswap.invalidate_area(cpu, swap_type(area));
    }

    fn reclaim(&self, cpu: Cpu, pages: u64) -> Reclaimed {
        let done = self.zswap.reclaim(cpu, pages);
        Reclaimed { written: done.written, failed: done.failed, skipped: done.left }
    }

    fn work(&self) -> bool {
        self.zswap.work(Cpu(0)) == Work::Again
    }

    fn shrink(&self, cpu: Cpu, pages: u64) {
        self.zswap.shrink(cpu, pages);
    }

    fn compact(&self, cpu: Cpu) {
        self.zswap.compact(cpu);
    }

    fn recompress(&self, cpu: Cpu) {
        self.zswap.set_auto(true).expect("there are codecs and memory");
        recompress(&self.zswap, cpu);
    }

    fn set(&self, policy: Policy) {
        let own = self.zswap.policy();
        match policy {
            Policy::Enabled(yes) => own.set_enabled(yes),
            Policy::Compressor(n) => {
                let names = zcomp::ALGORITHMS;
                // The change fails if pages of every codec are stored.
                let _ = self.zswap.set_compressor(names[n % names.len()]);
            }
            Policy::MaxPool(0) => {
                self.zswap.set_max_pool_bytes(0);
                self.zswap.set_max_pool_percent(100).expect("it is a percentage");
            }
            Policy::MaxPool(bytes) => self.zswap.set_max_pool_bytes(bytes),
            Policy::Accept(percent) => {
                own.set_accept_threshold_percent(percent).expect("it is a percentage");
            }
            Policy::Ratio(percent) => {
                own.set_max_compression_ratio(percent).expect("it is a percentage");
            }
            Policy::Exclusive(yes) => own.set_exclusive_loads(yes),
            Policy::SameFilled(yes) => own.set_same_filled(yes),
            Policy::NonSameFilled(yes) => own.set_non_same_filled(yes),
            Policy::Shrinker(yes) => own.set_shrinker_enabled(yes),
            Policy::InFlight(most) => own.set_writebacks_max(most).expect("it is not 0"),
            Policy::MemcgMax(memcg, bytes) => self.memcgs[memcg].set_max(bytes),
            Policy::MemcgWriteback(memcg, yes) => self.memcgs[memcg].set_writeback(yes),
        }
    }

    fn leave_frames(&self, frames: u32) {
        let mut taken = self.taken.lock();
        taken.drain(..).for_each(|frame| self.frames.free(Cpu(0), frame));
        if frames == u32::MAX {
            return;
        }
        // Frames from pcp lists become free for all CPUs.
        self.frames.drain();
        while let Some(frame) = self.frames.alloc(Cpu(0)) {
            taken.push(frame);
        }
        for _ in 0..frames {
            let Some(frame) = taken.pop() else { break };
            self.frames.free(Cpu(0), frame);
        }
    }

    fn totals(&self) -> Totals {
        let stats = self.zswap.stats();
        let refused = [
            stats.reject_disabled,
            stats.reject_reclaim_fail,
            stats.reject_alloc_fail,
            stats.reject_entry_fail,
            stats.reject_compress_fail,
            stats.reject_compress_poor,
        ];
        assert_eq!(stats.outstanding_writebacks, 0, "at rest nothing is under way");
        let bytes: u64 = self.memcgs.iter().map(Memcg::bytes).sum();
        assert_eq!(stats.compressed_bytes, bytes, "memcgs have {bytes} bytes: {stats:?}");
        Totals {
            stored: stats.stored_pages,
            pool_bytes: stats.pool_bytes,
            written_back: stats.written_back_pages,
            duplicates: stats.duplicate_entry,
            refused: refused.iter().sum(),
            limit_hits: stats.pool_limit_hit,
            compacted: stats.compacted_pages,
            memcg_pages: std::array::from_fn(|n| self.memcgs[n].pages()),
            memcg_bytes: std::array::from_fn(|n| self.memcgs[n].bytes()),
        }
    }

    fn validate(&self) {
        self.zswap.validate();
        self.frames.validate();
    }
}
