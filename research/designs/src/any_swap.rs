//! A cache of swap areas with any index.

use std::sync::Arc;

use block::BlockDevice;
use control::ControlError;
use pagealloc::Frames;
use sync::EventCount;
use units::{Cpu, Page};
use zswap::{
    AreaOptions, Headroom, Index, Key, LoadError, Memcg, Policy, Reclaimed, Reject, Stats,
    SwapDevice, SwapType, Work, Zswap,
};

/// The methods of a [`zswap::Zswap`] with any index. [`zswap::Zswap`] documents each method.
#[allow(missing_docs, reason = "each is the method of zswap::Zswap with that name")]
#[expect(clippy::missing_errors_doc, reason = "as there")]
pub trait AnySwap: Send + Sync {
    fn memcg(&self, name: &str) -> Result<Memcg, ControlError>;
    fn swapon(&self, swap: SwapType, pages: u64, options: AreaOptions) -> Result<(), ControlError>;
    fn swapoff(&self, swap: SwapType) -> Result<(), ControlError>;
    fn store(&self, cpu: Cpu, key: Key, memcg: &Memcg, page: &Page) -> Result<(), Reject>;
    fn load(&self, cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError>;
    fn load_and_keep(&self, cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError>;
    fn invalidate_page(&self, cpu: Cpu, key: Key);
    fn invalidate_area(&self, cpu: Cpu, swap: SwapType);
    fn reclaim(&self, cpu: Cpu, pages: u64) -> Reclaimed;
    fn shrink(&self, cpu: Cpu, pages: u64) -> Reclaimed;
    fn compact(&self, cpu: Cpu) -> u64;
    fn policy(&self) -> &Policy;
    fn zone(&self) -> &Arc<dyn Frames>;
    fn free_frames(&self) -> u64;
    fn provide(&self, cpu: Cpu, wanted: Headroom) -> bool;
    fn memory_event(&self) -> &EventCount;
    fn set_compressor(&self, name: &str) -> Result<(), ControlError>;
    fn set_auto(&self, on: bool) -> Result<(), ControlError>;
    fn recompress_old(&self, cpu: Cpu, elapsed: u64, spent: &dyn Fn() -> u64) -> bool;
    fn set_max_pool_percent(&self, percent: u32) -> Result<(), ControlError>;
    fn set_max_pool_bytes(&self, bytes: u64);
    fn work(&self, cpu: Cpu) -> Work;
    fn event(&self) -> &EventCount;
    fn stats(&self) -> Stats;
    fn validate(&self);
    /// The area as a block device: [`SwapDevice`].
    fn device(self: Arc<Self>, swap: SwapType) -> Arc<dyn BlockDevice>;
}

macro_rules! the_caches_own {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[inline]
            fn $name(&self, $($argument: $type),*) -> $result {
                Zswap::$name(self, $($argument),*)
            }
        )*
    };
}

impl<I: Index> AnySwap for Zswap<I> {
    the_caches_own! {
        memcg(name: &str) -> Result<Memcg, ControlError>;
        swapon(swap: SwapType, pages: u64, options: AreaOptions) -> Result<(), ControlError>;
        swapoff(swap: SwapType) -> Result<(), ControlError>;
        store(cpu: Cpu, key: Key, memcg: &Memcg, page: &Page) -> Result<(), Reject>;
        load(cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError>;
        load_and_keep(cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError>;
        invalidate_page(cpu: Cpu, key: Key) -> ();
        invalidate_area(cpu: Cpu, swap: SwapType) -> ();
        reclaim(cpu: Cpu, pages: u64) -> Reclaimed;
        shrink(cpu: Cpu, pages: u64) -> Reclaimed;
        compact(cpu: Cpu) -> u64;
        policy() -> &Policy;
        zone() -> &Arc<dyn Frames>;
        free_frames() -> u64;
        provide(cpu: Cpu, wanted: Headroom) -> bool;
        memory_event() -> &EventCount;
        set_compressor(name: &str) -> Result<(), ControlError>;
        set_auto(on: bool) -> Result<(), ControlError>;
        recompress_old(cpu: Cpu, elapsed: u64, spent: &dyn Fn() -> u64) -> bool;
        set_max_pool_percent(percent: u32) -> Result<(), ControlError>;
        set_max_pool_bytes(bytes: u64) -> ();
        work(cpu: Cpu) -> Work;
        event() -> &EventCount;
        stats() -> Stats;
        validate() -> ();
    }

    fn device(self: Arc<Self>, swap: SwapType) -> Arc<dyn BlockDevice> {
        Arc::new(SwapDevice::new(self, swap))
    }
}
