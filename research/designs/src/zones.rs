//! Designs of the page allocator, beside the product's `bitfield`: the kernel's shape, and what two
//! series of patches made of it.

#[cfg(not(loom))]
mod list_zone;
pub mod smp_list;

#[cfg(not(loom))]
pub use list_zone::{
    Batch, Cluster, Design, ListZone, Merge, NoMerge, Premerge, RangeRw, Spin, Splice,
};
