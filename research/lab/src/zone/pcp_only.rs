//! A control: a pcp list of single frames for each CPU that never runs out.
//!
//! It has no zone behind it. It shows the cost of calling a zone and of a workload's loop. No
//! design with pcp lists in front can be faster in this lab.
//!
//! # Why unsafe
//! [`Frames`] is a promise about addresses. This module never touches the frames.

use std::ptr::NonNull;

use pagealloc::{Frames, MemoryProvider, NoMemory, Region, ZoneOptions, ZoneStats};
use sync::{Mutex, PerCpu};
use units::{Cpu, Frame, PAGE_SIZE, PAGEBLOCK_SIZE};

/// The pcp lists. A frame changes its list only when another CPU frees it.
pub struct PcpOnly {
    region: Region,
    frames: u32,
    pcps: PerCpu<Mutex<Vec<u32>>>,
}

impl PcpOnly {
    /// Its name.
    pub const NAME: &'static str = "pcp-only";

    /// Shares all frames equally among the pcp lists.
    ///
    /// # Errors
    /// The provider has no such range.
    pub fn new(provider: &dyn MemoryProvider, options: ZoneOptions) -> Result<PcpOnly, NoMemory> {
        let frames = options.max_frames;
        let bytes = (frames as usize * PAGE_SIZE).next_multiple_of(PAGEBLOCK_SIZE);
        let region = provider.reserve(bytes)?;
        region.commit(0, bytes)?;
        let cpus = options.cpus.max(1) as u32;
        let share = frames / cpus;
        let pcps = PerCpu::new(cpus as usize, |cpu| {
            let cpu = cpu as u32;
            let end = if cpu + 1 == cpus { frames } else { (cpu + 1) * share };
            Mutex::new((cpu * share..end).rev().collect())
        });
        Ok(PcpOnly { region, frames, pcps })
    }
}

// SAFETY: each frame is in one pcp list or allocated, because each was put into one pcp list. All
// lie within the region, and its memory was committed.
unsafe impl Frames for PcpOnly {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.frames
    }

    #[inline]
    fn alloc(&self, cpu: Cpu) -> Option<Frame> {
        self.pcps.get(cpu).lock().pop().map(Frame)
    }

    #[inline]
    fn free(&self, cpu: Cpu, frame: Frame) {
        self.pcps.get(cpu).lock().push(frame.0);
    }

    fn drain(&self) {}

    fn stats(&self) -> ZoneStats {
        let cached = self.pcps.iter().map(|pcp| pcp.lock().len() as u64).sum();
        let managed = u64::from(self.frames);
        ZoneStats { allocated: managed - cached, cached, managed, ..ZoneStats::default() }
    }

    fn free_blocks(&self, _: &mut dyn FnMut(Frame, u8)) {}

    fn validate(&self) {
        let mut seen = vec![false; self.frames as usize];
        for pcp in self.pcps.iter() {
            for frame in pcp.lock().iter() {
                let before = std::mem::replace(&mut seen[*frame as usize], true);
                assert!(!before, "frame {frame} is in pcp list twice");
            }
        }
    }
}
