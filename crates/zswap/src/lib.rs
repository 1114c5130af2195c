//! A compressed cache of pages in front of a swap device.
//!
//! After Seth Jennings' zswap (linux-mm, "zswap: compressed swap caching", 2013) and what Linux
//! made of it since (`Documentation/admin-guide/mm/zswap.rst`), from their behaviour.
//!
//! [`Zswap`] is the cache: areas of swap space with an [`Index`] each, objects in a pool, lists of
//! what came when. [`SwapDevice`] is an area as a block device, with the area's own device behind
//! the cache. The engine knows no clock and starts no thread: somebody calls [`Zswap::work`] when
//! [`Zswap::event`] is notified, and [`Zswap::shrink`] when the system's memory is short.
//!
//! Under loom there is nothing here: `tests/loom_index.rs` takes what is modelled from its file.
#![no_std]
#![cfg(not(loom))]

extern crate alloc;

mod area;
mod attributes;
mod counts;
mod device;
mod engine;
mod entry;
mod evictors;
mod headroom;
pub mod index;
mod key;
mod lru;
mod memcg;
mod outcome;
mod policy;
mod stats;
mod writeback;

pub use attributes::{DEBUG, MEMCG_ATTRIBUTES, PARAMETERS};
pub use device::SwapDevice;
pub use engine::{AreaOptions, FindCodec, Parts, Zswap};
pub use headroom::Headroom;
pub use index::{Index, PAGES_PER_PART};
pub use key::{Key, MAX_OFFSETS, MAX_TYPES, SwapType, Word};
pub use memcg::{MAX_MEMCGS, Memcg};
pub use outcome::{LoadError, Reclaimed, Reject, Work};
pub use policy::Policy;
pub use stats::{AreaStats, Stats, Traffic};
