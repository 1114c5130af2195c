//! The settings of a device that another process needs, as `attribute=value`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tiers::Budgets;

use crate::Disk;

/// The settings of a device by the names of attributes, in the order in which another process
/// stores them in its new device. The size, the codecs and the pages are not among them: the device
/// keeps these itself, in memory that outlives the process. So it does with what is left of
/// `writeback_limit` from the time on that it has a size, because that changes with each page.
#[must_use]
pub fn saved_settings(disk: &Disk) -> Vec<(&'static str, String)> {
    let settings = disk.family().settings.lock();
    let flag = |on: bool| String::from(if on { "1" } else { "0" });
    let mut saved = Vec::new();
    saved.push(("track_access", flag(settings.track_access)));
    saved.push(("sealed_backing", flag(settings.sealed_backing)));
    if settings.backing_log {
        saved.push(("backing_layout", "log".into()));
    }
    if let Some(backing) = &settings.backing {
        saved.push(("backing_dev", backing.path().into()));
    }
    saved.push(("compressed_writeback", flag(settings.compressed_writeback)));
    saved.push(("mem_limit", settings.mem_limit.to_string()));
    saved.push(("when_full", disk.when_full().name().into()));
    if let Some(streams) = settings.max_streams {
        saved.push(("max_comp_streams", streams.to_string()));
    }
    saved.push(("writeback_limit", settings.writeback_limit.to_string()));
    saved.push(("writeback_limit_enable", flag(settings.writeback_limited)));
    saved.push(("writeback_batch_size", settings.writeback_batch.to_string()));
    let Budgets { target, cpu_percent, slowest_read, written_a_day } = settings.budgets;
    saved.push(("auto_target", target.to_string()));
    saved.push(("auto_cpu_percent", cpu_percent.to_string()));
    saved.push(("auto_slowest_read", slowest_read.to_string()));
    saved.push(("auto_writeback", written_a_day.to_string()));
    saved.push(("auto", flag(settings.auto)));
    saved
}
