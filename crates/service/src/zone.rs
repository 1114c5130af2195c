//! The report of the page allocator. All devices of a daemon and its swap cache take their memory
//! from it.

use std::fmt::Write;

use pagealloc::ZoneStats;
use serde::{Deserialize, Serialize};
use units::PAGE_SIZE;

use crate::engine::{self, Machine};

/// The report of a zone.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ZoneReport {
    /// The name of its design.
    pub design: String,
    /// Bytes allocated to what is stored.
    pub allocated_bytes: u64,
    /// Bytes in the pcp lists of CPUs.
    pub cached_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes requested from the system so far, all of the above included.
    pub managed_bytes: u64,
    /// Free blocks, by order.
    pub free_blocks: Vec<u64>,
    /// 2 MiB blocks given back to the system since the beginning.
    pub returned_blocks: u64,
    /// Frees of memory that was not allocated. Any value but 0 is a bug in the program.
    pub bad_frees: u64,
}

/// Frames in all free blocks.
#[must_use]
pub fn free_frames(stats: &ZoneStats) -> u64 {
    stats.free_blocks.iter().enumerate().map(|(order, blocks)| blocks << order).sum()
}

/// The line of `/proc/buddyinfo` for a zone (`frag_show_print` of Linux's mm/vmstat.c, seen from
/// outside): the free blocks of each order. As in Linux, frames in the pcp lists of cpus do not
/// count as free.
#[must_use]
pub fn buddyinfo(stats: &ZoneStats) -> String {
    let mut line = format!("Node 0, zone {:>8} ", "Normal");
    for blocks in stats.free_blocks {
        let _ = write!(line, "{blocks:6} ");
    }
    line + "\n"
}

impl ZoneReport {
    /// The current report of the zone of a machine.
    #[must_use]
    pub fn of(machine: &Machine) -> ZoneReport {
        let (design, stats) = engine::zone(machine);
        ZoneReport::new(design, &stats)
    }

    fn new(design: &str, stats: &ZoneStats) -> ZoneReport {
        let bytes = |frames: u64| frames * PAGE_SIZE as u64;
        ZoneReport {
            design: design.into(),
            allocated_bytes: bytes(stats.allocated),
            cached_bytes: bytes(stats.cached),
            free_bytes: bytes(free_frames(stats)),
            managed_bytes: bytes(stats.managed),
            free_blocks: stats.free_blocks.to_vec(),
            returned_blocks: stats.returned_blocks,
            bad_frees: stats.bad_frees,
        }
    }
}

#[cfg(test)]
mod tests;
