//! Designs of rampack's seams that the product does not ship, for experiments beside it.
//!
//! Each is built on the product's own seam: slot schemes ([`slots`]) behind
//! [`zram::slots::SlotTable`], stream policies ([`streams`]) behind [`zcomp::Streams`], indexes of
//! swap areas ([`indexes`]) behind [`zswap::Index`], page allocators ([`zones`]) behind
//! [`pagealloc::Frames`]. A [`Machine`] is made of one of each, by name, and the product's own
//! designs have names here, too; a disk of it does all that the product's does.

// Under loom there are only the lists that threads change side by side, and streams.
#[cfg(not(loom))]
mod any_disk;
#[cfg(not(loom))]
mod any_swap;
#[cfg(not(loom))]
pub mod indexes;
#[cfg(not(loom))]
mod machine;
#[cfg(not(loom))]
pub mod slots;
pub mod streams;
#[cfg(not(loom))]
mod variants;
pub mod zones;

#[cfg(not(loom))]
pub use any_disk::AnyDisk;
#[cfg(not(loom))]
pub use any_swap::AnySwap;
#[cfg(not(loom))]
pub use machine::{Disk, Machine, MachineOptions};
#[cfg(not(loom))]
pub use variants::{COUNTERS, INDEXES, SLOT_SCHEMES, STREAM_POLICIES, Variants, ZONES, make_index};

#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../crates/pagealloc/tests/suite/provider.rs"]
mod pretended;
