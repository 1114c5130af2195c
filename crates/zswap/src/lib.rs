//! A compressed cache of pages in front of a swap device.
//!
//! It follows the behaviour of Seth Jennings' zswap (linux-mm, "zswap: compressed swap caching",
//! 2013) and of its later versions in Linux (`Documentation/admin-guide/mm/zswap.rst`).
//!
//! [`Zswap`] is the cache: swap areas with an [`Index`] each, objects in a pool, and lists of
//! entries by age. [`SwapDevice`] is an area as a block device, with the area's own device behind
//! the cache. The engine reads no clock and starts no thread. The daemon calls [`Zswap::work`] when
//! [`Zswap::event`] is notified, and [`Zswap::shrink`] when the system's memory is short.
//!
//! A cache whose tables are in [`pagealloc::KeptMemory`] outlives the process: see [`Recovery`].
//!
//! Under loom this crate is empty: `tests/loom_index.rs` and `tests/loom_moves.rs` include the
//! files of the index, of the lock bits and of the words of objects directly.
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
mod lock_bits;
mod lru;
mod memcg;
mod object_word;
mod outcome;
mod persist;
mod policy;
mod record;
mod stats;
mod warming;
mod writeback;

pub use area::FreedBits;
pub use attributes::{DEBUG, MEMCG_ATTRIBUTES, PARAMETERS};
pub use device::SwapDevice;
pub use engine::{AreaOptions, FindCodec, Parts, Zswap};
pub use headroom::Headroom;
pub use index::Index;
pub use key::{Key, MAX_OFFSETS, MAX_TYPES, SwapType, Word};
pub use memcg::Memcg;
pub use outcome::{LoadError, Reclaimed, Reject, Work};
pub use persist::{AreaLeft, Left, Recovered, RecoveredArea, Recovery, SavedSwap};
pub use policy::Policy;
pub use record::{LAYOUT, MAX_MEMCGS, OLDEST_LAYOUT};
pub use stats::{Answers, AreaStats, DeviceAnswers, Stats, Traffic};
