//! Designs of rampack's seams for experiments. The product does not ship them.
//!
//! Each design implements a seam of the product: slot schemes ([`slots`]) behind
//! [`zram::slots::SlotTable`], stream policies ([`streams`]) behind [`zcomp::Streams`], indexes of
//! swap areas ([`indexes`]) behind [`zswap::Index`], page allocators ([`zones`]) behind
//! [`pagealloc::Frames`]. [`locks`] are what some of them wait by. A [`Machine`] takes one design
//! of each seam, by name. The product's own designs have names here, too.

// Under loom only locks and the lists that threads change concurrently are built.
#[cfg(not(loom))]
pub mod indexes;
pub mod locks;
#[cfg(not(loom))]
mod machine;
#[cfg(not(loom))]
pub mod slots;
#[cfg(not(loom))]
pub mod streams;
#[cfg(not(loom))]
mod variants;
pub mod zones;

#[cfg(not(loom))]
pub use machine::Machine;
#[cfg(not(loom))]
pub use variants::{
    ALLOCATORS, INDEX_KINDS, INDEXES, MEMORIES, POLICIES, SLOT_SCHEMES, SLOT_TABLES,
    STREAM_POLICIES, Variants, ZONES, make_index,
};

#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../crates/pagealloc/tests/suite/provider.rs"]
mod pretended;
