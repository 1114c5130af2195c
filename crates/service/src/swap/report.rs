//! The reports of swap devices.

use std::fmt::Write;

use rampack::control::ControlError;
use rampack::pagelog::LogStats;
use rampack::units::human;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::sentence;

/// One protection, and whether it is in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Protection {
    /// Its name.
    pub name: String,
    /// Is it in force?
    pub had: bool,
    /// How it is in force, or what its absence means.
    pub text: String,
}

/// The protection that `tried` made, or what its absence means.
pub(super) fn protection(
    name: &str,
    tried: Result<String, ControlError>,
    without: &str,
) -> Protection {
    let (had, text) = match tried {
        Ok(text) => (true, text),
        Err(error) => (false, format!("{}; {without}", sentence(&error))),
    };
    Protection { name: name.into(), had, text }
}

/// The report of a swap device.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SwapReport {
    /// Its name.
    pub name: String,
    /// The block device the kernel swaps to.
    pub block_device: String,
    /// Its size in bytes, the header included.
    pub bytes: u64,
    /// Does the kernel swap to it now?
    pub active: bool,
    /// The bytes of it that the kernel has in use.
    pub used: u64,
    /// The kernel's priority of the device.
    pub priority: Option<i32>,
    /// The file or device for writeback.
    pub backing: Option<String>,
    /// Was that file made with the device, and is it removed with it?
    pub backing_created: bool,
    /// Pages in the cache.
    pub cached_pages: u64,
    /// Pages on the backing device.
    pub disk_pages: u64,
    /// The log there, if pages lie in one.
    #[serde(default)]
    pub log: Option<LogReport>,
    /// The threads that serve it.
    #[serde(default)]
    pub serving: ServingReport,
    /// The protections of the daemon.
    pub protections: Vec<Protection>,
    /// What stands in front of it now although it should not: the user can change it.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The report of the log on a backing device. All numbers are bytes there.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LogReport {
    /// What compressed pages may take.
    pub capacity: u64,
    /// What they take.
    pub live: u64,
    /// What was written since the beginning.
    pub written: u64,
    /// What of it was written again to make room.
    pub copied: u64,
}

impl LogReport {
    /// The report of a log in this state.
    #[must_use]
    pub fn of(stats: &LogStats) -> LogReport {
        LogReport {
            capacity: stats.capacity_bytes,
            live: stats.live_bytes,
            written: stats.written_bytes,
            copied: stats.copied_bytes,
        }
    }
}

/// The report of the threads that serve a swap device.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ServingReport {
    /// How the kernel reaches them: `ublk` or `loop`.
    pub by: String,
    /// The number of threads.
    pub threads: u64,
    /// Their page faults since the swapon that needed no read from a device. There should be none.
    pub minor_faults: u64,
    /// Their page faults since the swapon that needed a read from a device. There should be none.
    pub major_faults: u64,
}

/// The report of the compressed cache that all swap devices of a daemon share.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct PoolReport {
    /// The compressor of its pages.
    pub compressor: String,
    /// Pages in the cache.
    pub stored_pages: u64,
    /// Bytes of memory that the cache takes for them.
    pub pool_bytes: u64,
    /// Bytes of memory that the cache may take.
    pub limit_bytes: u64,
    /// Pages written back to backing devices since the beginning.
    pub written_back_pages: u64,
    /// Pages written to backing devices because the cache did not take them.
    pub through_pages: u64,
    /// Pages stored in it since the beginning.
    pub stores: u64,
    /// Pages loaded from it since the beginning.
    pub loads: u64,
    /// Pages read from backing devices since the beginning.
    pub read_back_pages: u64,
    /// Pages that were refused since the beginning, for any reason.
    pub rejected_pages: u64,
    /// Pages in the cache that were compressed again because nobody read them.
    #[serde(default)]
    pub warm_pages: u64,
    /// The age in seconds at which pages are compressed again; 0 if they are not.
    #[serde(default)]
    pub recompress_age: u64,
    /// Refused pages that came before there was memory for them.
    #[serde(default)]
    pub late_pages: u64,
    /// Bytes of free memory for the next pages, where memory is provided ahead.
    #[serde(default)]
    pub headroom_bytes: Option<u64>,
    /// Pages that could not be read from backing devices since the beginning.
    #[serde(default)]
    pub unread_pages: u64,
    /// Pages among them that were not there as they had been written.
    #[serde(default)]
    pub changed_pages: u64,
    /// Pages that could not be written to backing devices since the beginning; they stayed.
    #[serde(default)]
    pub unwritten_pages: u64,
    /// Pages that backing devices are asked for now and have not answered for.
    #[serde(default)]
    pub waiting_pages: u64,
    /// How long no backing device has answered although pages wait for one, in seconds; 0 below
    /// ten.
    #[serde(default)]
    pub silent_seconds: u64,
}

impl PoolReport {
    /// Bytes of pages per byte of memory; `None` when nothing is stored.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let data = self.stored_pages * rampack::units::PAGE_SIZE as u64;
        (data > 0 && self.pool_bytes > 0).then(|| data as f64 / self.pool_bytes as f64)
    }
}

const HEADINGS: [&str; 9] =
    ["NAME", "SIZE", "USED", "CACHED", "ON-DISK", "PRIO", "DEVICE", "BACKING", "STATE"];

fn pages(count: u64, exact: bool) -> String {
    size(count * rampack::units::PAGE_SIZE as u64, exact)
}

fn size(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { human(bytes).to_string() }
}

/// The part of `rampack status` about swap devices; empty when there are none.
#[must_use]
pub fn table(swaps: &[SwapReport], pool: Option<&PoolReport>, exact: bool) -> String {
    if swaps.is_empty() {
        return String::new();
    }
    let mut lines = vec![HEADINGS.map(String::from)];
    for swap in swaps {
        lines.push([
            swap.name.clone(),
            size(swap.bytes, exact),
            size(swap.used, exact),
            pages(swap.cached_pages, exact),
            pages(swap.disk_pages, exact),
            swap.priority.map_or("-".into(), |priority| priority.to_string()),
            swap.block_device.clone(),
            swap.backing.clone().unwrap_or_else(|| "none".into()),
            if swap.active { "on" } else { "off" }.into(),
        ]);
    }
    let width = |n: usize| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADINGS.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (n, cell) in line.iter().enumerate() {
            let (gap, width) = (if n == 0 { "" } else { " " }, widths[n]);
            let _ = match n {
                1..=5 => write!(row, "{gap}{cell:>width$}"),
                _ => write!(row, "{gap}{cell:<width$}"),
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    if let Some(pool) = pool {
        let ratio = pool.ratio().map(|ratio| format!(", ratio {ratio:.2}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "cache: {} in {} of {} memory{ratio}, {}; {} written back, {} not taken",
            pages(pool.stored_pages, exact),
            size(pool.pool_bytes, exact),
            size(pool.limit_bytes, exact),
            pool.compressor,
            pages(pool.written_back_pages, exact),
            pages(pool.rejected_pages, exact)
        );
        if pool.recompress_age > 0 || pool.warm_pages > 0 {
            let when = match pool.recompress_age {
                0 => "no more now".into(),
                seconds => format!("when not read for {seconds} seconds"),
            };
            let warm = pages(pool.warm_pages, exact);
            let _ = writeln!(text, "recompressed: {warm} of it, {when}");
        }
        if let Some(headroom) = pool.headroom_bytes {
            let _ = writeln!(
                text,
                "headroom: {} of memory ready; {} came too early for it",
                size(headroom, exact),
                pages(pool.late_pages, exact)
            );
        }
    }
    if let Some(pool) = pool.filter(|pool| pool.unread_pages + pool.unwritten_pages > 0) {
        let _ = writeln!(
            text,
            "BACKING FAILS: {} could not be read, {} of it changed there; {} could not be written, \
             and stayed in memory",
            pages(pool.unread_pages, exact),
            pages(pool.changed_pages, exact),
            pages(pool.unwritten_pages, exact)
        );
    }
    if let Some(pool) = pool.filter(|pool| pool.silent_seconds > 0) {
        let _ = writeln!(
            text,
            "BACKING DOES NOT ANSWER: {} wait for it, for {} seconds",
            pages(pool.waiting_pages, exact),
            pool.silent_seconds
        );
    }
    for swap in swaps {
        let Some(log) = &swap.log else { continue };
        let _ = writeln!(
            text,
            "{}: {} in {} of a log of {}; {} written, {} of it again to make room",
            swap.name,
            pages(swap.disk_pages, exact),
            size(log.live, exact),
            size(log.capacity, exact),
            size(log.written, exact),
            size(log.copied, exact)
        );
    }
    for swap in swaps {
        let ServingReport { by, threads, minor_faults, major_faults } = &swap.serving;
        let _ = writeln!(
            text,
            "{}: served by {by}, {threads} threads with {} page faults since it is on",
            swap.name,
            minor_faults + major_faults
        );
    }
    text + &missing(swaps) + &notes(swaps)
}

/// A line for each note, which all devices of a daemon have.
fn notes(swaps: &[SwapReport]) -> String {
    let notes = swaps.first().into_iter().flat_map(|swap| &swap.notes);
    notes.map(|note| format!("NOTE: {note}\n")).collect()
}

/// A line for each missing protection. Every device of a daemon has the same protections.
#[must_use]
pub fn missing(swaps: &[SwapReport]) -> String {
    let lacking = swaps.first().into_iter().flat_map(|swap| &swap.protections);
    let lacking = lacking.filter(|protection| !protection.had);
    lacking.map(|it| format!("NOT PROTECTED ({}): {}\n", it.name, it.text)).collect()
}

/// A swap device as an object for programs.
#[must_use]
pub fn object(swap: &SwapReport) -> Value {
    let page = rampack::units::PAGE_SIZE as u64;
    json!({
        "name": swap.name,
        "block_device": swap.block_device,
        "size": swap.bytes,
        "active": swap.active,
        "used": swap.used,
        "priority": swap.priority,
        "backing": swap.backing,
        "backing_created": swap.backing_created,
        "cached": swap.cached_pages * page,
        "on_disk": swap.disk_pages * page,
        "log": swap.log,
        "serving": swap.serving,
        "protections": swap.protections,
        "notes": swap.notes,
    })
}

/// The cache as an object for programs.
#[must_use]
pub fn pool_object(pool: &PoolReport) -> Value {
    let ratio = pool.ratio().map(|ratio| (ratio * 100.0).round() / 100.0);
    json!({
        "compressor": pool.compressor,
        "stored_pages": pool.stored_pages,
        "pool_bytes": pool.pool_bytes,
        "limit_bytes": pool.limit_bytes,
        "ratio": ratio,
        "written_back_pages": pool.written_back_pages,
        "through_pages": pool.through_pages,
        "stores": pool.stores,
        "loads": pool.loads,
        "read_back_pages": pool.read_back_pages,
        "rejected_pages": pool.rejected_pages,
        "warm_pages": pool.warm_pages,
        "recompress_age": pool.recompress_age,
        "late_pages": pool.late_pages,
        "headroom": pool.headroom_bytes,
        "unread_pages": pool.unread_pages,
        "changed_pages": pool.changed_pages,
        "unwritten_pages": pool.unwritten_pages,
        "waiting_pages": pool.waiting_pages,
        "silent_seconds": pool.silent_seconds,
    })
}

#[cfg(test)]
mod tests;
