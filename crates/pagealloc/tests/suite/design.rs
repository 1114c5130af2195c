//! What the suite is told of a design.
// Each test binary uses a part of it.
#![allow(dead_code)]

use pagealloc::{Frames, MemoryProvider, Zone, ZoneOptions};
use units::{Cpu, Frame};

/// A zone as the suite calls it: with larger blocks, if its design has them.
pub trait Lender: Frames {
    /// The largest order of its blocks.
    fn largest(&self) -> u8;

    /// Allocates a block of `1 << order` frames, aligned to its size; `None` when memory is out.
    fn lend(&self, cpu: Cpu, order: u8) -> Option<Frame>;

    /// Takes a block back.
    fn take_back(&self, cpu: Cpu, frame: Frame, order: u8);
}

impl Lender for Zone {
    fn largest(&self) -> u8 {
        0
    }
    fn lend(&self, cpu: Cpu, order: u8) -> Option<Frame> {
        assert_eq!(order, 0, "it has single frames only");
        self.alloc(cpu)
    }
    fn take_back(&self, cpu: Cpu, frame: Frame, order: u8) {
        assert_eq!(order, 0, "it has single frames only");
        self.free(cpu, frame);
    }
}

/// Makes a zone on a provider.
pub type Make = fn(&dyn MemoryProvider, ZoneOptions) -> Box<dyn Lender>;

/// A design, and what it promises beyond the seam.
#[derive(Clone, Copy)]
pub struct Design {
    /// Its name.
    pub name: &'static str,
    /// Makes a zone of it.
    pub make: Make,
    /// Whether free buddies are merged at any time, and not only once the zone is drained.
    pub merges: bool,
    /// Whether 2 MiB blocks that come free go back to the system at once, but for those that may
    /// stay, and not only once the zone is drained.
    pub returns_at_once: bool,
}

/// The product's.
pub const PRODUCT: Design =
    Design { name: Zone::<()>::NAME, make: zone, merges: true, returns_at_once: true };

/// A zone of the product's.
pub fn zone(provider: &dyn MemoryProvider, options: ZoneOptions) -> Box<dyn Lender> {
    Box::new(Zone::new(provider, options).expect("there is memory for it"))
}
