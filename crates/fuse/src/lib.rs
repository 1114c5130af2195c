//! The frontend for machines that have neither ublk nor nbd: a device appears as a file in a FUSE
//! mount, and, for root, as a loop device on that file.
//!
//! [`Mount`] serves any number of [`block::BlockDevice`]s as files of one directory. The kernel is
//! told to bypass its page cache and to let writes run in parallel, so that what is stored
//! compressed is not also kept uncompressed. [`LoopDevice`] makes a block device of such a file.
//! [`SwapFile`] serves one device as a file that the kernel may swap to, without the library that
//! serves the others: on threads that never allocate and never wait for memory.
//! [`TreeMount`] serves a [`control::tree`] as files in the manner of sysfs. [`leftovers`] finds
//! and clears what a killed daemon left of them.
//!
//! A process must never wait for its own mount with the threads that serve it, nor hold a file of
//! its own mount open: nothing in here does, and the loop device is opened only while it is being
//! changed.

mod error;
mod frontend;
pub mod leftovers;
mod loopdev;
mod loops;
mod mount;
mod mounts;
mod patient;
mod place;
mod ranges;
pub mod swapfile;
mod sys;
mod table;
mod tree;
mod users;
mod worker;

pub use error::Error;
pub use loopdev::{LoopDevice, LoopOptions};
pub use loops::find_by_backing;
pub use mount::{Mount, Options};
pub use swapfile::{SwapFile, SwapFileOptions};
pub use sys::current_cpu;
pub use tree::TreeMount;
pub use users::User;

#[cfg(test)]
mod tests;
