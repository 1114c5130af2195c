//! The reports of swap devices.

use control::ControlError;
use pagelog::LogStats;
use serde::{Deserialize, Serialize};

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
    /// How it learns of freed pages: the function of the kernel that tells of each, or `discards`
    /// of whole free clusters.
    #[serde(default)]
    pub frees_by: String,
    /// Why it does not learn of each freed page.
    #[serde(default)]
    pub frees_lack: Option<String>,
    /// Pages that the kernel told it of one by one.
    #[serde(default)]
    pub freed_pages: u64,
    /// The protections of the daemon.
    pub protections: Vec<Protection>,
    /// What of the kernel takes pages before it, as was asked for.
    #[serde(default)]
    pub front: Option<String>,
    /// What is not as it should be now, and the user can change: what stands in front of it, and
    /// parts that are not swapped to.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl SwapReport {
    /// A sentence for each protection that is not in force.
    pub fn missing(&self) -> impl Iterator<Item = String> {
        let lacking = self.protections.iter().filter(|protection| !protection.had);
        lacking.map(|it| format!("NOT PROTECTED ({}): {}", it.name, it.text))
    }
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
    /// How the kernel reaches them: `ublk`, `loop`, or `loop, io_uring`.
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
    /// Pages dropped since the beginning because the kernel told that it had freed them.
    #[serde(default)]
    pub freed_pages: u64,
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
    /// How long a backing device has not answered although pages wait for it, in seconds; 0 below
    /// ten.
    #[serde(default)]
    pub silent_seconds: u64,
}

impl PoolReport {
    /// Bytes of pages per byte of memory; `None` when nothing is stored.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let data = self.stored_pages * units::PAGE_SIZE as u64;
        (data > 0 && self.pool_bytes > 0).then(|| data as f64 / self.pool_bytes as f64)
    }
}
