//! The list of designs that are tested, in the order of the switchboard.
// Each test binary uses a part of it.
#![allow(dead_code)]

use pagealloc::{
    Cluster, Frames, ListZone, NoMerge, Premerge, RangeRw, Spin, Splice, World, Zone, ZoneOptions,
};

/// Makes a zone in a world.
pub type Make = fn(&dyn World, ZoneOptions) -> Box<dyn Frames>;

/// A design, and what it promises beyond the seam.
#[derive(Clone, Copy)]
pub struct Design {
    /// Its name, as in the switchboard.
    pub name: &'static str,
    /// Makes a zone of it.
    pub make: Make,
    /// Whether free buddies are merged at any time, and not only once the zone is drained.
    pub merges: bool,
    /// Whether 2 MiB blocks that come free go back to the system at once, but for those that may
    /// stay, and not only once the zone is drained.
    pub returns_at_once: bool,
}

/// Every design.
pub const DESIGNS: &[Design] = &[
    Design { name: "bitfield", make: zone, merges: true, returns_at_once: true },
    Design { merges: true, ..list::<Spin>() },
    Design { merges: true, ..list::<RangeRw>() },
    list::<Splice>(),
    list::<Premerge>(),
    list::<NoMerge>(),
    list::<Cluster>(),
];

/// The product's own.
pub fn zone(world: &dyn World, options: ZoneOptions) -> Box<dyn Frames> {
    Box::new(Zone::new(world, options).expect("there is memory for it"))
}

/// One of the kernel's shape.
const fn list<D: pagealloc::Design>() -> Design {
    let make: Make = |world, options| {
        Box::new(ListZone::<D>::new(world, options).expect("there is memory for it"))
    };
    Design { name: D::NAME, make, merges: false, returns_at_once: false }
}
