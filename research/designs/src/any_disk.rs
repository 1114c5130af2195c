//! A disk of any design.

use std::sync::Arc;

use block::{BlockDevice, IoError};
use control::Fault;
use units::{Cpu, Page};
use zcomp::Params;
use zram::{Design, Disk, Recompress, Stats, Writeback};

/// What a [`zram::Disk`] does, whatever its design; see there for each method.
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
    fn set_algorithm(&self, name: &str) -> Result<(), Fault>;
    fn set_algorithm_at(&self, priority: u8, name: &str) -> Result<(), Fault>;
    fn switch_algorithm(&self, priority: u8, name: &str, params: Params) -> Result<(), Fault>;
    fn set_params(&self, params: Params) -> Result<(), Fault>;
    fn set_mem_limit(&self, bytes: u64);
    fn set_max_streams(&self, count: u32) -> Result<(), Fault>;
    fn max_streams(&self) -> u32;
    fn set_backing(&self, path: &str) -> Result<(), Fault>;
    fn set_compressed_writeback(&self, on: bool) -> Result<(), Fault>;
    fn set_writeback_batch(&self, pages: u32) -> Result<(), Fault>;
    fn reset_peak(&self);
    fn set_disksize(&self, bytes: u64) -> Result<(), Fault>;
    fn resize(&self, bytes: u64) -> Result<(), Fault>;
    fn reset(&self) -> Result<(), Fault>;
    fn compact(&self) -> Result<u64, Fault>;
    fn mark_idle(&self, seconds: Option<u32>) -> Result<(), Fault>;
    fn writeback(&self, what: &Writeback) -> Result<(), Fault>;
    fn recompress(&self, what: &Recompress) -> Result<(), Fault>;
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
        set_algorithm(name: &str) -> Result<(), Fault>;
        set_algorithm_at(priority: u8, name: &str) -> Result<(), Fault>;
        switch_algorithm(priority: u8, name: &str, params: Params) -> Result<(), Fault>;
        set_params(params: Params) -> Result<(), Fault>;
        set_mem_limit(bytes: u64) -> ();
        set_max_streams(count: u32) -> Result<(), Fault>;
        max_streams() -> u32;
        set_backing(path: &str) -> Result<(), Fault>;
        set_compressed_writeback(on: bool) -> Result<(), Fault>;
        set_writeback_batch(pages: u32) -> Result<(), Fault>;
        reset_peak() -> ();
        set_disksize(bytes: u64) -> Result<(), Fault>;
        resize(bytes: u64) -> Result<(), Fault>;
        reset() -> Result<(), Fault>;
        compact() -> Result<u64, Fault>;
        mark_idle(seconds: Option<u32>) -> Result<(), Fault>;
        writeback(what: &Writeback) -> Result<(), Fault>;
        recompress(what: &Recompress) -> Result<(), Fault>;
    }

    fn as_device(self: Arc<Self>) -> Arc<dyn BlockDevice> {
        self
    }
}
