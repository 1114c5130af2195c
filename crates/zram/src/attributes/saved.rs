//! The settings of a device that another process needs, as `attribute=value`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, sync::Arc};

use control::{ControlError, Object as _};
use tiers::Budgets;
use zcomp::{PRIORITIES, Params};

use super::algorithms::parameters;
use super::attributes;
use crate::disk::Settings;
use crate::{Disk, Which};

/// The settings that are of no attribute: the codec of each priority, of a device without a size.
const CODECS: [&str; PRIORITIES] = ["codec.0", "codec.1", "codec.2", "codec.3"];

/// The settings of a device by the names of attributes, in the order in which another process
/// stores them in its new device ([`restore_setting`]). The size and the pages are not among them:
/// the device keeps these itself, in memory that outlives the process. So it does, from the time on
/// that it has a size, with its codecs, and with what is left of `writeback_limit`, because that
/// changes with each page. Before it has one, a dictionary ends with the process.
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
    if disk.bytes() == 0 {
        saved.extend(codecs(&settings, disk.resources.default_algorithm));
    }
    saved
}

/// The codecs that are not as in a new device.
fn codecs(settings: &Settings, default: &'static str) -> Vec<(&'static str, String)> {
    let mut saved = Vec::new();
    for (at, name) in CODECS.into_iter().enumerate() {
        let (algorithm, Params { level, window_bits, .. }) =
            (settings.algorithms[at], &settings.params[at]);
        let algorithm = algorithm.filter(|it| at > 0 || *it != default);
        let words = [
            algorithm.map(|it| format!("algo={it}")),
            level.map(|it| format!("level={it}")),
            window_bits.map(|it| format!("deflate.winbits={it}")),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if !words.is_empty() {
            saved.push((name, words.join(" ")));
        }
    }
    saved
}

/// Stores one of [`saved_settings`] in a new device.
///
/// # Errors
/// Those of the attribute; `EINVAL` or `ENOENT` for a codec that this program does not have.
pub fn restore_setting(disk: &Arc<Disk>, name: &str, value: &str) -> Result<(), ControlError> {
    let Some(priority) = CODECS.iter().position(|it| *it == name) else {
        return attributes(disk.clone()).store(name, value);
    };
    let priority = priority as u8;
    let (Which { algorithm, .. }, params) = parameters(disk, name, value)?;
    if let Some(algorithm) = algorithm {
        disk.set_algorithm_at(priority, &algorithm)?;
    }
    disk.set_params_of(&Which { priority: Some(priority), algorithm: None }, params)
}
