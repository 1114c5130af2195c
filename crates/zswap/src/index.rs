//! The index interface: from the offset of a page in a swap area to its entry.
//!
//! An index does not hold entries, it names them. Its promise is linearizability: whatever threads
//! do to an offset at once, there is an order of their calls in which each call returned its
//! result. So if several threads take an entry out, exactly one gets its word and owns the entry.
//!
//! The product has one index: [`Flat`].

mod contract;
mod flat;

pub use contract::Index;
pub use flat::Flat;
