//! Keeps the latest contents of each page of a disk, compressed.
//!
//! `engine` is the store of pages: a slot table, a pool of objects, streams of codecs, and one
//! commit point between them. [`Disk`] is the device around it: size, settings, statistics, users,
//! byte ranges that need not be whole pages, and post-processing. Its attributes are
//! [`attributes`].
//!
//! Each folder is a subject, and others use what the file of its name lets out. `engine` is the
//! store of pages and what it is made of; `path` the way of a request; `ops` what else is done to
//! pages; `tiering` what moves them by age; `disk` the device, its size, settings and statistics.
//! [`slots`], `counts`, `record` and `resources` stand below them, `attributes`, `cloning`,
//! `persist` and [`snapshot`] above them. The backing device is a [`pagelog::Backing`].
//!
//! What a device has in [`pagealloc::KeptMemory`] outlives the process: see [`Recovery`].
//!
//! The engine does no I/O, reads no clock and starts no thread. The device fetches written-back
//! pages from the [`block::BlockDevice`] that it was given.
#![no_std]

extern crate alloc;

mod attributes;
mod cloning;
mod counts;
mod disk;
mod engine;
mod ops;
mod path;
mod persist;
mod record;
mod resources;
pub mod slots;
pub mod snapshot;
mod tiering;

pub use attributes::{ATTRIBUTES, attributes, with_absolute_paths};
pub use attributes::{restore_setting, saved_settings};
pub use cloning::Cloned;
pub use disk::WhenFull;
pub use disk::Which;
pub use disk::{Density, Stats};
pub use disk::{Disk, Opener};
pub use engine::Clock;
pub use engine::Select;
pub use engine::{Kind, Part, Slot};
pub use objects::{Findings, Object, Persist};
pub use ops::{Pack, Share};
pub use ops::{Recompress, Writeback};
pub use pagelog::Backed;
pub use pagelog::LogStats;
pub use persist::{Family, Recovered, Recovery, SavedDisk};
pub use record::{LAYOUT, OLDEST_LAYOUT};
pub use resources::{HostFiles, NoHostFiles, OpenCodec, Resources};
pub use snapshot::{Restored, Restoring, Snapshot};
pub use tiering::fingerprint;
pub use tiering::{TierCounts, TierStats};
pub use tiers::Budgets;
pub use zsmalloc::{Census, Classes as SizeClasses};

#[cfg(test)]
mod tests;
