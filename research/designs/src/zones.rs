//! Designs of the page allocator: the kernel's free lists, and two series of patches to them. The
//! product's own design is `bitfield`.

#[cfg(not(loom))]
mod list_zone;
pub mod smp_list;

#[cfg(not(loom))]
pub use list_zone::{
    Batch, Cluster, Design, ListZone, Merge, NoMerge, Premerge, RangeRw, Spin, Splice,
};
