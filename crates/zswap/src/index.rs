//! The index interface: from the offset of a page in a swap area to its entry.
//!
//! An index does not hold entries, it names them. Its promise is linearizability: whatever threads
//! do to an offset at once, there is an order of their calls in which each call returned its
//! result. So if several threads take an entry out, exactly one gets its word and owns the entry.
//!
//! The product has one index: [`Flat`]. The trees are for experiments.

mod cells;
mod contract;
mod flat;
mod node_pool;
mod radix;
mod trees;
mod xarray;

pub use contract::{Index, PAGES_PER_PART};
pub use flat::Flat;
pub use trees::{Forest, Split, Trees};
pub use xarray::RadixTrees;

/// `xarray-split`: each part of the area has a radix tree. A lookup takes no lock; changes take one
/// lock per tree (as in Linux now).
pub type XArraySplit = Split<RadixTrees>;
