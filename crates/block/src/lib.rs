//! What a request, a block device and a layer are.
//!
//! One shape serves all three: a disk, a layer over a disk and later a backing store are each a
//! [`BlockDevice`]. Frontends (NBD, FUSE) serve any of them; layers own the next device. The
//! contract of an operation is checked once, by [`Checked`], the outermost link of every chain.
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
    Abilities, BlockDevice, Extent, ExtentKind, Geometry, Job, Operation, Visit, ZeroMode,
};
pub use error::IoError;
pub use plain::Plain;

#[cfg(test)]
mod tests;
