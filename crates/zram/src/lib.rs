//! Keeps the latest contents of each page of a disk, compressed.
//!
//! [`Engine`] is the store of pages: a slot table, a pool of objects, streams of codecs, and the
//! one commit point between them. [`Disk`] is the device round it: a size, settings, statistics,
//! users, and byte ranges that need not be pages. [`attributes`] are its rows.
//!
//! The engine does no I/O, knows no clock and starts no thread.
#![no_std]

extern crate alloc;

mod attributes;
mod counts;
mod disk;
mod engine;
mod filled;
mod life;
mod ranges;
mod slot;
pub mod slots;
mod stats;

pub use attributes::{ROWS, attributes};
pub use disk::{Disk, DiskOptions, Opener};
pub use engine::{Engine, EngineParts, PageStore};
pub use life::{Nowhere, Outside, Plan, Workshop};
pub use slot::{Kind, Slot};
pub use stats::Stats;

#[cfg(test)]
mod tests;
