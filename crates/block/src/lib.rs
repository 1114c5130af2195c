//! What a request, a block device and a layer are.
//!
//! One shape serves all three: a disk, a layer over a disk and later a backing store are each a
//! [`BlockDevice`]. Frontends (NBD, FUSE, ublk) serve any of them; layers own the next device. A
//! device judges the range of an operation itself; [`Checked`] does so for one that does not.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod checked;
mod device;
mod error;
pub mod layer;
mod plain;

pub use checked::Checked;
pub use device::{
    Abilities, BlockDevice, Context, Extent, ExtentKind, Geometry, Job, Operation, Visit, Wait,
    ZeroMode,
};
pub use error::IoError;
pub use plain::Plain;

#[cfg(test)]
mod tests;
