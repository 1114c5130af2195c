//! The interface of requests, block devices and layers.
//!
//! A disk, a layer over a disk and a backing store are each a [`BlockDevice`]. Frontends (NBD,
//! FUSE, ublk) serve any of them; a layer owns the next device. A device checks the range of an
//! operation itself; [`Checked`] does so for a device that does not.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod absent;
mod checked;
mod device;
mod error;
pub mod layer;
mod packed;
mod plain;

pub use absent::Absent;
pub use checked::Checked;
pub use device::{
    Abilities, AskRemote, BlockDevice, Context, Extent, ExtentKind, Geometry, Job, Operation,
    RemoteStats, Visit, Wait, ZeroMode,
};
pub use error::IoError;
pub use packed::{Packed, PackedPages};
pub use plain::Plain;

#[cfg(test)]
mod tests;
