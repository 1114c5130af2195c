//! Designs of the page allocator: the kernel's free lists, and two series of patches to them. The
//! product's own design is `bitfield`.

#[cfg(not(loom))]
mod list_zone;
pub mod smp_list;

#[cfg(not(loom))]
pub use list_zone::{
    Batch, Cluster, Design, ListZone, Merge, NoMerge, Premerge, RangeRw, Spin, Splice,
};

/// A zone that has blocks of more than one frame, as the kernel's has. The product's has none.
#[cfg(not(loom))]
pub trait Blocks: pagealloc::Frames {
    /// Allocates a block of `1 << order` frames, aligned to its size; `None` when memory is out.
    /// `order` is at most [`units::MAX_ORDER`].
    fn alloc_block(&self, cpu: units::Cpu, order: u8) -> Option<units::Frame>;

    /// Takes a block back. It must have been allocated with this order and not been freed since.
    fn free_block(&self, cpu: units::Cpu, frame: units::Frame, order: u8);
}
