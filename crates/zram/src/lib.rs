//! Keeps the latest contents of each page of a disk, compressed.
//!
//! [`Engine`] is the store of pages: a slot table, a pool of objects, streams of codecs, and the
//! one commit point between them. [`Disk`] is the device round it: a size, settings, statistics,
//! users, byte ranges that need not be pages, and what is done to pages that are there. Its rows
//! are [`attributes`].
//!
//! The engine does no I/O, knows no clock and starts no thread. Pages that were written back are
//! fetched by the device, from a [`block::BlockDevice`] that somebody gave it.
#![no_std]

extern crate alloc;

mod access;
mod attributes;
mod blocks;
mod counts;
mod disk;
mod engine;
mod factory;
mod post_processing;
mod ranges;
mod read_backing;
mod settings;
mod slot;
pub mod slots;
mod stats;
mod store;

pub use access::Clock;
pub use attributes::{ROWS, attributes};
pub use blocks::Backing;
pub use disk::{Disk, DiskOptions, Opener};
pub use engine::{Engine, EngineParts};
pub use factory::{Factory, HostFiles, NoHostFiles, Plan, StreamRules};
pub use post_processing::{Recompress, Writeback};
pub use settings::Which;
pub use slot::{Backed, Kind, Slot};
pub use stats::Stats;
pub use store::{Export, Loaded, PageStore, Recompressed, Recompression, Select};
pub use zcomp::{Chosen, MakeStreams};

#[cfg(test)]
mod tests;
