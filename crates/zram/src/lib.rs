//! Keeps the latest contents of each page of a disk, compressed.
//!
//! `engine` is the store of pages: a slot table, a pool of objects, streams of codecs, and one
//! commit point between them. [`Disk`] is the device around it: size, settings, statistics, users,
//! byte ranges that need not be whole pages, and post-processing. Its attributes are
//! [`attributes`].
//!
//! The files stand in layers, and each uses those before it: `slot`, [`slots`], `shared`, `access`,
//! `counts`, `blocks`, `backing`, `page_ops`, `record`, `resources`,
//! `tables`, `fingerprints`; `engine`; `request`, `ranges`, `read_backing`;
//! `settings`, `stats`, `tier_moves`, `tier_walk`, `disk`, `write_error`, `write_log`; `data_path`,
//! `lifecycle`, `recovery`, `configure`, `post_processing`, `pack_share`, `tiering`, `check`;
//! `attributes`.
//!
//! What a device has in [`pagealloc::KeptMemory`] outlives the process: see [`Recovery`].
//!
//! The engine does no I/O, reads no clock and starts no thread. The device fetches written-back
//! pages from the [`block::BlockDevice`] that it was given.
#![no_std]

extern crate alloc;

mod access;
mod attributes;
mod backing;
mod blocks;
mod check;
mod configure;
mod counts;
mod data_path;
mod disk;
mod engine;
mod fingerprints;
mod lifecycle;
mod make_room;
mod pack_share;
mod page_ops;
mod post_processing;
mod ranges;
mod read_backing;
mod record;
mod recovery;
mod request;
mod resources;
mod settings;
mod shared;
mod slot;
pub mod slots;
mod stats;
mod tables;
mod tier_moves;
mod tier_out;
mod tier_press;
mod tier_stats;
mod tier_walk;
mod tier_writeback;
mod tiering;
mod when_full;
mod write_error;
mod write_log;

pub use access::Clock;
pub use attributes::{ATTRIBUTES, attributes, saved_settings};
pub use blocks::BackingBlocks;
pub use disk::{Disk, Opener};
pub use fingerprints::fingerprint;
pub use objects::Object;
pub use pack_share::{Pack, Share};
pub use page_ops::Select;
pub use pagelog::Backed;
pub use pagelog::LogStats;
pub use post_processing::{Recompress, Writeback};
pub use record::{LAYOUT, OLDEST_LAYOUT};
pub use recovery::{Recovered, Recovery};
#[cfg(any(shuttle, asan))]
pub use resources::Without;
pub use resources::{Design, HostFiles, NoHostFiles, OpenCodec, Product, Resources};
pub use settings::Which;
pub use slot::{Kind, Part, Slot};
pub use stats::{Density, Stats};
pub use tier_stats::{TierCounts, TierStats};
pub use tiers::Budgets;
pub use when_full::WhenFull;
pub use zsmalloc::Census;

#[cfg(test)]
mod tests;
