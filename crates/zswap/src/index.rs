//! The seam of indexes: from the offset of a page in a swap area to its entry.
//!
//! An index keeps no entries, it names them. It promises one thing: whatever threads do to an
//! offset at once, there is an order of their calls in which each returned what it did. So of
//! several that take an entry out, exactly one gets its word, and that one owns the entry.
//!
//! The product has one: [`XArraySplit`].

mod cells;
mod contract;
mod node_pool;
mod radix;
mod trees;
mod xarray;

pub use contract::{Index, PAGES_PER_PART};
pub use trees::{Forest, Split, Trees};
pub use xarray::RadixTrees;

/// `xarray-split`: for each part of the area a radix tree with lookups that take no lock, and one
/// lock for those who change it (as Linux's now).
pub type XArraySplit = Split<RadixTrees>;
