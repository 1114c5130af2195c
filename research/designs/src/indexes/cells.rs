//! The memory of radix-tree nodes.

use sync::atomic::{AtomicU32, AtomicU64};

/// Bits of an offset that select a slot. Checkers use smaller nodes, which are allocated and freed
/// more often.
pub const BITS: u32 = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    6
};
/// Slots of a node.
pub const SLOTS: usize = 1 << BITS;
/// The memory of nodes, which are numbered from 1. All of it is zero at first.
pub trait Cells: Send + Sync {
    /// Slot `slot` of a node.
    fn slot(&self, node: u32, slot: usize) -> &AtomicU64;
    /// The number of ended lives of a node.
    fn life(&self, node: u32) -> &AtomicU32;
    /// For a node in a tree: the number of its non-empty slots. For another node: the next one in
    /// its list.
    fn count(&self, node: u32) -> &AtomicU32;
    /// The highest number that may be used.
    fn highest(&self) -> u32;
}
