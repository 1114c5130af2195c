//! A control: a stock of single frames for each CPU that never runs out.
//!
//! No zone is behind it. It shows what the way to a zone costs and what the loop of a workload
//! costs: no design with stocks in front can be faster in this laboratory.
//!
//! # Why unsafe
//! [`Frames`] is a promise about addresses; the frames are never touched here.

use std::ptr::NonNull;

use pagealloc::{Frames, NoMemory, Region, World, ZoneOptions, ZoneStats};
use sync::{Mutex, PerCpu};
use units::{BLOCK_SIZE, Cpu, Frame, Order, PAGE_SIZE};

/// The stocks. Frames move between them only when they are freed on another CPU.
pub struct PcpOnly {
    region: Region,
    frames: u32,
    stocks: PerCpu<Mutex<Vec<u32>>>,
}

impl PcpOnly {
    /// Its name.
    pub const NAME: &'static str = "pcp-only";

    /// Equal stocks of all frames.
    ///
    /// # Errors
    /// The world has no such range.
    pub fn new(world: &dyn World, options: ZoneOptions) -> Result<PcpOnly, NoMemory> {
        let frames = options.max_frames;
        let bytes = (frames as usize * PAGE_SIZE).next_multiple_of(BLOCK_SIZE);
        let region = world.reserve(bytes)?;
        region.commit(0, bytes)?;
        let cpus = options.cpus.max(1) as u32;
        let share = frames / cpus;
        let stocks = PerCpu::new(cpus as usize, |cpu| {
            let cpu = cpu as u32;
            let end = if cpu + 1 == cpus { frames } else { (cpu + 1) * share };
            Mutex::new((cpu * share..end).rev().collect())
        });
        Ok(PcpOnly { region, frames, stocks })
    }
}

// SAFETY: each frame is in one stock or lent, as each was put into one stock, all lie within the
// region, and its memory was committed.
unsafe impl Frames for PcpOnly {
    fn base(&self) -> NonNull<u8> {
        self.region.base()
    }

    fn capacity(&self) -> u32 {
        self.frames
    }

    #[inline]
    fn alloc(&self, cpu: Cpu, order: Order) -> Option<Frame> {
        if order != Order::ZERO {
            return None;
        }
        self.stocks.get(cpu).lock().pop().map(Frame)
    }

    #[inline]
    fn free(&self, cpu: Cpu, frame: Frame, _: Order) {
        self.stocks.get(cpu).lock().push(frame.0);
    }

    fn drain(&self) {}

    fn stats(&self) -> ZoneStats {
        let cached = self.stocks.iter().map(|stock| stock.lock().len() as u64).sum();
        let managed = u64::from(self.frames);
        ZoneStats { lent: managed - cached, cached, managed, ..ZoneStats::default() }
    }

    fn free_blocks(&self, _: &mut dyn FnMut(Frame, Order)) {}

    fn validate(&self) {
        let mut seen = vec![false; self.frames as usize];
        for stock in self.stocks.iter() {
            for frame in stock.lock().iter() {
                let before = std::mem::replace(&mut seen[*frame as usize], true);
                assert!(!before, "frame {frame} is in stock twice");
            }
        }
    }
}
