//! The workloads of the threads on a zone.

use clap::ValueEnum;
use serde::Serialize;

/// A workload. A *cycle* allocates a thread's share of frames and frees it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// All threads allocate; when the last is done, all free, in the order of allocation
    Bulk,
    /// Half of the zone being allocated: one frame is allocated and freed at once, over and over
    Repeat,
    /// As will-it-scale's: each allocates 32768 frames one by one, then frees them in that order;
    /// nobody waits for anybody
    #[value(name = "page-fault1")]
    #[serde(rename = "page-fault1")]
    PageFault1,
    /// As bulk, but each frees the frames of the next thread, in a random order
    CrossFree,
}

impl Workload {
    /// Whether threads wait for each other between phases.
    pub fn meets(self) -> bool {
        matches!(self, Workload::Bulk | Workload::CrossFree)
    }

    /// Frames of each thread in a cycle, for a zone of `frames` frames and `threads` threads.
    pub fn share(self, frames: u32, threads: usize) -> usize {
        let all = frames as usize / threads;
        match self {
            Workload::PageFault1 => (all / 2).min(PAGE_FAULT1),
            _ => all / 2,
        }
    }
}

/// Frames of 128 MiB, which page_fault1 of will-it-scale maps.
pub const PAGE_FAULT1: usize = 32_768;

/// Frames of a zone without a number on the command line.
const USUAL: u32 = 1 << 18;

/// Frames of a zone for a workload, without a number on the command line.
pub fn usual_frames(workload: Workload, threads: usize) -> u32 {
    match workload {
        Workload::PageFault1 => USUAL.max((2 * PAGE_FAULT1 * threads) as u32),
        _ => USUAL,
    }
}
