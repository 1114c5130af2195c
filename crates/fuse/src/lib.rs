//! The frontend for machines without ublk and nbd. A device appears as a file in a FUSE mount and,
//! for root, as a loop device on that file.
//!
//! [`Mount`] serves any number of [`block::BlockDevice`]s as files of one directory. The kernel
//! bypasses its page cache, so a page that is stored compressed is not also kept uncompressed.
//! Writes run in parallel. [`LoopDevice`] makes a block device of such a file. [`SwapFile`] serves
//! one device as a file that the kernel may swap to. It does not use the library that serves the
//! other files; its threads never allocate and never wait for memory. [`TreeMount`] serves a
//! [`control::tree`] as files in the manner of sysfs. [`leftovers`] finds and clears what a killed
//! daemon left.
//!
//! A serving thread must never wait for its own mount, and the process must not hold a file of its
//! own mount open. This crate does neither. It opens the loop device only to change it.

mod drive;
mod error;
mod frontend;
mod handover;
mod later;
pub mod leftovers;
mod loopdev;
mod loops;
mod mount;
mod mounts;
mod own_files;
mod place;
mod ranges;
mod ring;
mod serving;
pub mod swapfile;
mod table;
mod tree;
mod users;
mod worker;

pub use drive::Driven;
pub use error::Error;
pub use loopdev::{Hold, KnownLoop, LoopDevice, LoopOptions, Made, check_loops};
pub use loops::find_by_backing;
pub use mount::{CutOff, KeptFile, Mount, Opens, Options};
pub use mounts::unmount_fuse as unmount;
pub use swapfile::{SwapFile, SwapFileOptions};
pub use table::NEXT;
pub use tree::TreeMount;
pub use users::User;

#[cfg(test)]
mod tests;
