//! A disk of any design.

use std::sync::Arc;

use block::{BlockDevice, IoError};
use control::ControlError;
use units::{Cpu, Page};
use zcomp::Params;
use zram::{
    Budgets, Density, Design, Disk, LogStats, Pack, Recompress, Share, Stats, WhenFull, Writeback,
};

/// The methods of a [`zram::Disk`] of any design. [`zram::Disk`] documents each method.
#[allow(missing_docs, reason = "each is the method of zram::Disk with that name")]
#[expect(clippy::missing_errors_doc, reason = "as there")]
pub trait AnyDisk: BlockDevice {
    fn store_page(&self, cpu: Cpu, index: u64, page: &Page) -> Result<(), IoError>;
    fn load_page(&self, cpu: Cpu, index: u64, page: &mut Page) -> Result<(), IoError>;
    fn discard_pages(&self, cpu: Cpu, first: u64, count: u64) -> Result<(), IoError>;
    fn bytes(&self) -> u64;
    fn stats(&self) -> Stats;
    fn scheme(&self) -> Option<&'static str>;
    fn validate(&self);
    fn set_algorithm(&self, name: &str) -> Result<(), ControlError>;
    fn set_algorithm_at(&self, priority: u8, name: &str) -> Result<(), ControlError>;
    fn switch_algorithm(
        &self,
        priority: u8,
        name: &str,
        params: Params,
    ) -> Result<(), ControlError>;
    fn set_params(&self, params: Params) -> Result<(), ControlError>;
    fn set_mem_limit(&self, bytes: u64);
    fn set_when_full(&self, policy: WhenFull) -> Result<(), ControlError>;
    fn set_max_streams(&self, count: u32) -> Result<(), ControlError>;
    fn max_streams(&self) -> u32;
    fn set_backing(&self, path: &str) -> Result<(), ControlError>;
    fn set_backing_log(&self, on: bool) -> Result<(), ControlError>;
    fn log_stats(&self) -> Option<LogStats>;
    fn set_compressed_writeback(&self, on: bool) -> Result<(), ControlError>;
    fn set_writeback_batch(&self, pages: u32) -> Result<(), ControlError>;
    fn set_writeback_limit(&self, pages: u64);
    fn limit_writeback(&self, on: bool);
    fn reset_peak(&self);
    fn set_disksize(&self, bytes: u64) -> Result<(), ControlError>;
    fn resize(&self, bytes: u64) -> Result<(), ControlError>;
    fn reset(&self) -> Result<(), ControlError>;
    fn compact(&self) -> Result<u64, ControlError>;
    fn mark_idle(&self, seconds: Option<u32>) -> Result<(), ControlError>;
    fn writeback(&self, what: &Writeback) -> Result<(), ControlError>;
    fn recompress(&self, what: &Recompress) -> Result<(), ControlError>;
    fn pack(&self, what: &Pack) -> Result<u64, ControlError>;
    fn share(&self, what: &Share) -> Result<u64, ControlError>;
    fn share_by(
        &self,
        what: &Share,
        fingerprint: &dyn Fn(&Page) -> u64,
    ) -> Result<u64, ControlError>;
    fn density(&self) -> Density;
    fn set_track_access(&self, on: bool) -> Result<(), ControlError>;
    fn set_auto(&self, on: bool) -> Result<(), ControlError>;
    fn set_budgets(&self, budgets: Budgets) -> Result<(), ControlError>;
    fn move_pages(&self, elapsed: u64, spent: &dyn Fn() -> u64) -> Result<bool, ControlError>;
    fn as_device(self: Arc<Self>) -> Arc<dyn BlockDevice>;
}

macro_rules! the_disks_own {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[inline]
            fn $name(&self, $($argument: $type),*) -> $result {
                Disk::$name(self, $($argument),*)
            }
        )*
    };
}

impl<D: Design> AnyDisk for Disk<D> {
    the_disks_own! {
        store_page(cpu: Cpu, index: u64, page: &Page) -> Result<(), IoError>;
        load_page(cpu: Cpu, index: u64, page: &mut Page) -> Result<(), IoError>;
        discard_pages(cpu: Cpu, first: u64, count: u64) -> Result<(), IoError>;
        bytes() -> u64;
        stats() -> Stats;
        scheme() -> Option<&'static str>;
        validate() -> ();
        set_algorithm(name: &str) -> Result<(), ControlError>;
        set_algorithm_at(priority: u8, name: &str) -> Result<(), ControlError>;
        switch_algorithm(priority: u8, name: &str, params: Params) -> Result<(), ControlError>;
        set_params(params: Params) -> Result<(), ControlError>;
        set_mem_limit(bytes: u64) -> ();
        set_when_full(policy: WhenFull) -> Result<(), ControlError>;
        set_max_streams(count: u32) -> Result<(), ControlError>;
        max_streams() -> u32;
        set_backing(path: &str) -> Result<(), ControlError>;
        set_backing_log(on: bool) -> Result<(), ControlError>;
        log_stats() -> Option<LogStats>;
        set_compressed_writeback(on: bool) -> Result<(), ControlError>;
        set_writeback_batch(pages: u32) -> Result<(), ControlError>;
        set_writeback_limit(pages: u64) -> ();
        limit_writeback(on: bool) -> ();
        reset_peak() -> ();
        set_disksize(bytes: u64) -> Result<(), ControlError>;
        resize(bytes: u64) -> Result<(), ControlError>;
        reset() -> Result<(), ControlError>;
        compact() -> Result<u64, ControlError>;
        mark_idle(seconds: Option<u32>) -> Result<(), ControlError>;
        writeback(what: &Writeback) -> Result<(), ControlError>;
        recompress(what: &Recompress) -> Result<(), ControlError>;
        pack(what: &Pack) -> Result<u64, ControlError>;
        share(what: &Share) -> Result<u64, ControlError>;
        share_by(what: &Share, fingerprint: &dyn Fn(&Page) -> u64) -> Result<u64, ControlError>;
        density() -> Density;
        set_track_access(on: bool) -> Result<(), ControlError>;
        set_auto(on: bool) -> Result<(), ControlError>;
        set_budgets(budgets: Budgets) -> Result<(), ControlError>;
        move_pages(elapsed: u64, spent: &dyn Fn() -> u64) -> Result<bool, ControlError>;
    }

    fn as_device(self: Arc<Self>) -> Arc<dyn BlockDevice> {
        self
    }
}
