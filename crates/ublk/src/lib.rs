//! The frontend for swap space: a device appears as the block device `/dev/ublkbN` of the kernel's
//! driver ublk, and threads of this process carry its requests out.
//!
//! When memory is out the kernel waits for its swap space, so nothing on the way of a request may
//! wait for memory. ublk needs none for a request: neither a worker nor an object of its own
//! stands between the block layer and the serving thread. And the threads here have all they use
//! before the device appears: their stacks, their buffers, their rings. Once they serve they use
//! no heap, write no log and take no lock that somebody holds while in the kernel.
//!
//! That is half of it. The caller keeps the memory of the process from being taken away again
//! (`mlockall(2)`), and the device must not allocate either.
//!
//! [`Ublk`] is a device that is served, [`available`] tells whether there can be one, and
//! [`leftovers`] finds what a killed process left.

mod answer;
mod control;
mod device;
mod error;
mod leftovers;
mod nodes;
mod queue;
mod ring;
mod sys;
mod waiters;
mod wire;

pub use control::available;
pub use device::{Options, Ublk};
pub use error::Error;
pub use leftovers::{Leftover, clear, leftovers};

#[cfg(test)]
mod tests;
