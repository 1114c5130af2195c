//! The results of `density`.

use serde::Serialize;

use super::load::Ages;

/// The times of single reads of cold pages, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cold {
    /// The median; null if no page was cold.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

impl Cold {
    /// The percentiles of times in microseconds.
    pub fn of(mut times: Vec<f64>) -> Cold {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100).copied();
        Cold { p50: at(50), p99: at(99) }
    }
}

/// What the kernel's device takes for a dump.
pub struct Peer {
    /// See [`Run`].
    pub algorithm: String,
    /// See [`Run`].
    pub data_per_byte: f64,
    /// See [`Run`].
    pub store_ns: f64,
    /// See [`Run`].
    pub load_ns: f64,
}

/// A dump under a load, beside the kernel with an algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The dump.
    pub corpus: String,
    /// The share of the pages that was not used; null if pages aged.
    pub idle_percent: Option<u32>,
    /// How pages aged; null if they rested.
    pub ages: Option<Ages>,
    /// Seconds of the lab's clock.
    pub seconds: u32,
    /// Bytes of all pages.
    pub data_bytes: u64,
    /// Memory that this process gained, without pages of its program.
    pub rss_bytes: u64,
    /// Memory of the pool.
    pub pool_bytes: u64,
    /// Bytes of all objects.
    pub compressed_bytes: u64,
    /// Memory of the pool and of the tables.
    pub engine_bytes: u64,
    /// `data_bytes` over `rss_bytes`.
    pub data_per_byte: f64,
    /// The algorithm of the kernel's zram, if there was one.
    pub kernel_algorithm: Option<String>,
    /// The data in a byte of `mem_used_total` and the kernel's table.
    pub kernel_data_per_byte: Option<f64>,
    /// `data_per_byte` over that.
    pub over_kernel: Option<f64>,
    /// Nanoseconds to store a page: a call of the library.
    pub store_ns: f64,
    /// Nanoseconds to store a page on the kernel's device: a system call, past the page cache.
    pub kernel_store_ns: Option<f64>,
    /// Nanoseconds to load a page, over all pages in the tiers in which they are.
    pub load_ns: f64,
    /// Nanoseconds to load a page of the kernel's device.
    pub kernel_load_ns: Option<f64>,
    /// Single reads of pages that had not been used for a minute.
    pub cold_read_us: Cold,
    /// CPU time of the moves, in percent of one CPU over `seconds`.
    pub background_cpu_percent: f64,
    /// Pages that moved, each move counted.
    pub moved_pages: u64,
    /// Uses that came too soon after a move.
    pub used_too_soon: u64,
    /// Pages that were read in the end and had the stored contents.
    pub verified_pages: usize,
    /// The pages of the dump.
    pub pages: usize,
}

impl Run {
    /// This run beside the kernel's.
    pub fn beside(&self, peer: Option<&Peer>) -> Run {
        let Some(peer) = peer else { return self.clone() };
        Run {
            kernel_algorithm: Some(peer.algorithm.clone()),
            kernel_data_per_byte: Some(peer.data_per_byte),
            over_kernel: Some(self.data_per_byte / peer.data_per_byte),
            kernel_store_ns: Some(peer.store_ns),
            kernel_load_ns: Some(peer.load_ns),
            ..self.clone()
        }
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `density`.
    pub command: &'static str,
    /// The codec of pages that are in use.
    pub algorithm: String,
    /// The CPU time that moves may take, in percent of one CPU.
    pub cpu_percent: u32,
    /// The seed of all that is drawn at random.
    pub seed: u64,
    /// The runs.
    pub runs: Vec<Run>,
}
