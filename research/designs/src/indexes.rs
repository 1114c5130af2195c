//! Indexes of swap areas. The product's own index is `flat`.

mod cells;
mod node_pool;
mod radix;
mod red_black;
mod trees;
mod xarray;

pub use red_black::RedBlackTrees;
pub use trees::{Forest, Trees};
pub use xarray::RadixTrees;
use zswap::{MAX_OFFSETS, Word};

/// Pages in each part of a split index: 64 MiB of swap space, as Linux splits its own (Chengming
/// Zhou, linux-mm, "mm/zswap: split zswap rb-tree", 2024).
pub const PAGES_PER_PART: u64 = 1 << 14;

/// An index of one tree.
pub type Whole<F> = Trees<F, MAX_OFFSETS>;

/// An index of one tree for each [`PAGES_PER_PART`] pages.
pub type Split<F> = Trees<F, PAGES_PER_PART>;

/// `rbtree`: one red-black tree, one lock (Linux's zswap of 2013).
pub type RbTree = Whole<RedBlackTrees>;
/// `rbtree-split`: a red-black tree and a lock for each part (Chengming Zhou, "mm/zswap: split
/// zswap rb-tree", 2024).
pub type RbTreeSplit = Split<RedBlackTrees>;
/// `xarray`: one radix tree with lock-free lookups, and one lock for the threads that change it.
pub type XArray = Whole<RadixTrees>;
/// `xarray-split`: each part of the area has a radix tree. A lookup takes no lock; changes take one
/// lock per tree (as in Linux now).
pub type XArraySplit = Split<RadixTrees>;
