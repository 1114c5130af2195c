//! A disk of any design, and a cache of swap areas with any index.

use std::sync::Arc;

use block::{BlockDevice, IoError};
use control::ControlError;
use pagealloc::Frames;
use sync::EventCount;
use units::{Cpu, Page};
use zcomp::Params;
use zram::{
    Budgets, Density, Design, Disk, LogStats, Pack, Recompress, Share, WhenFull, Writeback,
};
use zswap::{
    AreaOptions, Headroom, Index, Key, LoadError, Memcg, Policy, Reclaimed, Reject, SwapDevice,
    SwapType, Work, Zswap,
};

/// A trait with methods of a type, and the type's implementation of it: its own methods of these
/// names, and what else is said.
macro_rules! any {
    (
        $(#[$about:meta])*
        $any:ident: ($($bound:path),+) of $own:ident<$design:path>;
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*
        also { $($also:tt)* } as { $($made:tt)* }
    ) => {
        $(#[$about])*
        #[allow(missing_docs, reason = "each is the type's own method of that name")]
        #[expect(clippy::missing_errors_doc, reason = "as there")]
        pub trait $any: $($bound +)+ {
            $(fn $name(&self, $($argument: $type),*) -> $result;)*
            $($also)*
        }

        impl<D: $design> $any for $own<D> {
            $(
                #[inline]
                fn $name(&self, $($argument: $type),*) -> $result {
                    $own::$name(self, $($argument),*)
                }
            )*
            $($made)*
        }
    };
}

any! {
    /// The methods of a [`zram::Disk`] of any design.
    AnyDisk: (BlockDevice) of Disk<Design>;
    fn store_page(cpu: Cpu, index: u64, page: &Page) -> Result<(), IoError>;
    fn load_page(cpu: Cpu, index: u64, page: &mut Page) -> Result<(), IoError>;
    fn discard_pages(cpu: Cpu, first: u64, count: u64) -> Result<(), IoError>;
    fn bytes() -> u64;
    fn stats() -> zram::Stats;
    fn scheme() -> Option<&'static str>;
    fn validate() -> ();
    fn set_algorithm(name: &str) -> Result<(), ControlError>;
    fn set_algorithm_at(priority: u8, name: &str) -> Result<(), ControlError>;
    fn switch_algorithm(priority: u8, name: &str, params: Params) -> Result<(), ControlError>;
    fn set_params(params: Params) -> Result<(), ControlError>;
    fn set_mem_limit(bytes: u64) -> ();
    fn set_when_full(policy: WhenFull) -> Result<(), ControlError>;
    fn set_max_streams(count: u32) -> Result<(), ControlError>;
    fn max_streams() -> u32;
    fn set_backing(path: &str) -> Result<(), ControlError>;
    fn set_backing_log(on: bool) -> Result<(), ControlError>;
    fn log_stats() -> Option<LogStats>;
    fn set_compressed_writeback(on: bool) -> Result<(), ControlError>;
    fn set_writeback_batch(pages: u32) -> Result<(), ControlError>;
    fn set_writeback_limit(pages: u64) -> ();
    fn limit_writeback(on: bool) -> ();
    fn reset_peak() -> ();
    fn set_disksize(bytes: u64) -> Result<(), ControlError>;
    fn resize(bytes: u64) -> Result<(), ControlError>;
    fn reset() -> Result<(), ControlError>;
    fn compact() -> Result<u64, ControlError>;
    fn mark_idle(seconds: Option<u32>) -> Result<(), ControlError>;
    fn writeback(what: &Writeback) -> Result<(), ControlError>;
    fn recompress(what: &Recompress) -> Result<(), ControlError>;
    fn pack(what: &Pack) -> Result<u64, ControlError>;
    fn share(what: &Share) -> Result<u64, ControlError>;
    fn share_by(what: &Share, fingerprint: &dyn Fn(&Page) -> u64) -> Result<u64, ControlError>;
    fn density() -> Density;
    fn set_track_access(on: bool) -> Result<(), ControlError>;
    fn set_auto(on: bool) -> Result<(), ControlError>;
    fn set_budgets(budgets: Budgets) -> Result<(), ControlError>;
    fn move_pages(elapsed: u64, spent: &dyn Fn() -> u64) -> Result<bool, ControlError>;
    also {} as {}
}

any! {
    /// The methods of a [`zswap::Zswap`] with any index.
    AnySwap: (Send, Sync) of Zswap<Index>;
    fn memcg(name: &str) -> Result<Memcg, ControlError>;
    fn swapon(swap: SwapType, pages: u64, options: AreaOptions) -> Result<(), ControlError>;
    fn swapoff(swap: SwapType) -> Result<(), ControlError>;
    fn store(cpu: Cpu, key: Key, memcg: &Memcg, page: &Page) -> Result<(), Reject>;
    fn load(cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError>;
    fn load_and_keep(cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError>;
    fn invalidate_page(cpu: Cpu, key: Key) -> ();
    fn invalidate_area(cpu: Cpu, swap: SwapType) -> ();
    fn reclaim(cpu: Cpu, pages: u64) -> Reclaimed;
    fn shrink(cpu: Cpu, pages: u64) -> Reclaimed;
    fn compact(cpu: Cpu) -> u64;
    fn policy() -> &Policy;
    fn zone() -> &Arc<dyn Frames>;
    fn free_frames() -> u64;
    fn provide(cpu: Cpu, wanted: Headroom) -> bool;
    fn memory_event() -> &EventCount;
    fn set_compressor(name: &str) -> Result<(), ControlError>;
    fn set_auto(on: bool) -> Result<(), ControlError>;
    fn recompress_old(cpu: Cpu, elapsed: u64, spent: &dyn Fn() -> u64) -> bool;
    fn set_max_pool_percent(percent: u32) -> Result<(), ControlError>;
    fn set_max_pool_bytes(bytes: u64) -> ();
    fn work(cpu: Cpu) -> Work;
    fn event() -> &EventCount;
    fn stats() -> zswap::Stats;
    fn validate() -> ();
    also {
        /// The area as a block device: [`SwapDevice`].
        fn device(self: Arc<Self>, swap: SwapType) -> Arc<dyn BlockDevice>;
    } as {
        fn device(self: Arc<Self>, swap: SwapType) -> Arc<dyn BlockDevice> {
            Arc::new(SwapDevice::new(self, swap))
        }
    }
}
