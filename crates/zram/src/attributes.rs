//! The attributes of a device, in the kernel's words and formats.
//!
//! Source: Linux `Documentation/admin-guide/blockdev/zram.rst`, and for max_comp_streams and the
//! one-value statistics the same document of 2014 (`Documentation/blockdev/zram.txt`). The
//! differences are in docs/reference/zram.md.

mod algorithms;
mod keys;
mod paths;
mod saved;
mod settings;
mod statistics;
mod tiers;
mod writeback;

use alloc::sync::Arc;

use control::{Attribute, Bound};

pub use paths::with_absolute_paths;
pub use saved::{restore_setting, saved_settings};

use crate::Disk;

/// The attributes of a device, bound to it.
#[must_use]
pub fn attributes(disk: Arc<Disk>) -> Bound<Disk> {
    Bound::new(disk, ATTRIBUTES)
}

/// Every attribute of a device.
pub static ATTRIBUTES: &[Attribute<Disk>] = &[
    settings::DISKSIZE,
    settings::INITSTATE,
    settings::RESET,
    settings::RESIZE,
    algorithms::COMP_ALGORITHM,
    algorithms::RECOMP_ALGORITHM,
    algorithms::ALGORITHM_PARAMS,
    algorithms::SWITCH_ALGORITHM,
    algorithms::RECOMPRESS,
    algorithms::PACK,
    algorithms::SHARE,
    settings::MAX_COMP_STREAMS,
    settings::MEM_LIMIT,
    settings::WHEN_FULL,
    settings::MEM_USED_MAX,
    settings::COMPACT,
    settings::TRACK_ACCESS,
    writeback::IDLE,
    writeback::BACKING_DEV,
    writeback::WRITEBACK,
    writeback::WRITEBACK_LIMIT,
    writeback::WRITEBACK_LIMIT_ENABLE,
    writeback::WRITEBACK_BATCH_SIZE,
    writeback::COMPRESSED_WRITEBACK,
    writeback::SEALED_BACKING,
    writeback::BACKING_LAYOUT,
    writeback::LOG_STAT,
    writeback::BACKING_REMOTE,
    writeback::REMOTE_STAT,
    writeback::SCRUB,
    tiers::AUTO,
    tiers::AUTO_TARGET,
    tiers::AUTO_CPU_PERCENT,
    tiers::AUTO_SLOWEST_READ,
    tiers::AUTO_WRITEBACK,
    tiers::AUTO_STAT,
    statistics::NUM_READS,
    statistics::NUM_WRITES,
    statistics::FAILED_READS,
    statistics::FAILED_WRITES,
    statistics::INVALID_IO,
    statistics::NOTIFY_FREE,
    statistics::ZERO_PAGES,
    statistics::ORIG_DATA_SIZE,
    statistics::COMPR_DATA_SIZE,
    statistics::MEM_USED_TOTAL,
    statistics::LOST_PAGES,
    statistics::MM_STAT,
    statistics::IO_STAT,
    statistics::BD_STAT,
    statistics::DEBUG_STAT,
    statistics::STAT,
    statistics::BLOCK_STATE,
    statistics::PACK_STAT,
    statistics::SHARE_STAT,
];
