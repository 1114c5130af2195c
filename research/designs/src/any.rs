//! A disk of any design.

use block::{BlockDevice, IoError};
use control::ControlError;
use units::{Cpu, Page};
use zcomp::Params;
use zram::{
    Budgets, Density, Design, Disk, LogStats, Pack, Recompress, Share, WhenFull, Writeback,
};

/// A trait with methods of a type, and the type's implementation of it: its own methods of these
/// names.
macro_rules! any {
    (
        $(#[$about:meta])*
        $any:ident: $bound:ident of $own:ident<$design:path>;
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*
    ) => {
        $(#[$about])*
        #[allow(missing_docs, reason = "each is the type's own method of that name")]
        #[expect(clippy::missing_errors_doc, reason = "as there")]
        pub trait $any: $bound {
            $(fn $name(&self, $($argument: $type),*) -> $result;)*
        }

        impl<D: $design> $any for $own<D> {
            $(
                #[inline]
                fn $name(&self, $($argument: $type),*) -> $result {
                    $own::$name(self, $($argument),*)
                }
            )*
        }
    };
}

any! {
    /// The methods of a [`zram::Disk`] of any design.
    AnyDisk: BlockDevice of Disk<Design>;
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
}
