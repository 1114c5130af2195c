//! What the suite is told of a design.
// Each test binary uses a part of it.
#![allow(dead_code)]

use pagealloc::{Frames, MemoryProvider, Zone, ZoneOptions};

/// Makes a zone on a provider.
pub type Make = fn(&dyn MemoryProvider, ZoneOptions) -> Box<dyn Frames>;

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
pub fn zone(provider: &dyn MemoryProvider, options: ZoneOptions) -> Box<dyn Frames> {
    Box::new(Zone::new(provider, options).expect("there is memory for it"))
}
