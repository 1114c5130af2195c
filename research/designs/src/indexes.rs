//! Indexes of swap areas. The product's own index is `flat`.

mod red_black;

pub use red_black::RedBlackTrees;
use zswap::MAX_OFFSETS;
use zswap::index::{RadixTrees, Split, Trees};

/// An index of one tree.
pub type Whole<F> = Trees<F, MAX_OFFSETS>;

/// `rbtree`: one red-black tree, one lock (Linux's zswap of 2013).
pub type RbTree = Whole<RedBlackTrees>;
/// `rbtree-split`: a red-black tree and a lock for each part (Chengming Zhou, "mm/zswap: split
/// zswap rb-tree", 2024).
pub type RbTreeSplit = Split<RedBlackTrees>;
/// `xarray`: one radix tree with lock-free lookups, and one lock for the threads that change it.
pub type XArray = Whole<RadixTrees>;
