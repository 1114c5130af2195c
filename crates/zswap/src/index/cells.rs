//! The memory of the nodes of radix trees.

use sync::atomic::{AtomicU32, AtomicU64};

/// Bits of an offset that choose a slot. Checkers have smaller nodes, which come and go more often.
pub const BITS: u32 = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    6
};
/// Slots of a node.
pub const SLOTS: usize = 1 << BITS;
/// The memory of nodes, which are numbered from 1. All of it is zero in the beginning.
pub trait Cells: Send + Sync {
    /// Slot `slot` of a node.
    fn slot(&self, node: u32, slot: usize) -> &AtomicU64;
    /// How many lives of a node have ended.
    fn life(&self, node: u32) -> &AtomicU32;
    /// Of a node in a tree, how many slots are not empty; of another, the next one in its list.
    fn count(&self, node: u32) -> &AtomicU32;
    /// The highest number that may be used.
    fn highest(&self) -> u32;
}
