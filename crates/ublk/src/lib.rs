//! The frontend for swap space. A device appears as the block device `/dev/ublkbN` of the kernel's
//! driver ublk, and threads of this process carry out its requests.
//!
//! When there is no free memory, the kernel waits for its swap space, so no step of a request may
//! wait for memory. ublk allocates nothing per request: between the block layer and the serving
//! thread it has no worker and no object. The threads here have all they use before the device
//! appears: their stacks, buffers and rings. A serving thread uses no heap, writes no log and takes
//! no lock that another thread holds in a system call.
//!
//! Two more conditions: the caller locks the memory of the process (`mlockall(2)`), and the device
//! does not allocate.
//!
//! Each request comes and is answered by a command of its own; one system call takes any number.
//! The driver of Linux 7.0 also has commands for batches (`UBLK_F_BATCH_IO`), which are not used.
//! Tried in a guest with Linux 7.2, they gained nothing that could be measured: 0.94 times the
//! reads and as many writes alone, 0.86 and 0.76 times with 16 under way, medians of rounds that
//! lie far apart (docs/measuring/data/ways.tsv).
//!
//! [`Ublk`] is a served device. [`available`] checks whether one can be made. [`leftovers`] finds
//! the devices that a killed process left; [`Ublk::recover`] serves on a recoverable one.

mod answer;
mod control;
mod control_ring;
mod device;
mod error;
mod leftovers;
mod nodes;
mod queue;
mod ring;
mod waiters;
mod wire;

pub use control::available;
pub use device::{Id, Options, Ublk};
pub use error::Error;
pub use leftovers::{Fate, Leftover, clear, leftovers};

#[cfg(test)]
mod tests;
