//! Cold parts of a backing device, at stores on the network.
//!
//! [`open`] puts a layer above a device. The device is cut into chunks of 1 or 4 MiB. A chunk that
//! was not used for a while is written to the stores; when enough of them have acknowledged it, its
//! space on the device below is given back. It is read from the stores then, as many blocks as are
//! asked for, and comes back before it is changed. The layout that profits is a log, whose segments
//! are written once: see `zram`.
//!
//! The stores are what [OpenDAL](https://opendal.apache.org) speaks to and this program contains:
//! Redis, S3 and what understands its protocol, directories. A layer above encrypts
//! (`seal::Sealed`); this one has a checksum of each block in memory. So what a store lost, mixed
//! up or kept from former times is an error of that store, and the next one is asked. A store that
//! fails is left alone for a while.
//!
//! A seed of this project, RAMster (Dan Magenheimer, 2011), kept cold pages in the memory of other
//! machines. This does it with programs that people run already.
//!
//! All requests are made by one thread, `remote`, but those to a directory by threads of its own,
//! for it may hang. Callers wait for them. What is at the stores is of use only while the device is
//! open: its end deletes it.
#![forbid(unsafe_code)]

mod breaker;
mod chunks;
mod device;
mod exchange;
mod mover;
mod options;
mod rarely;
mod shared;
mod store;

use std::sync::Arc;

use block::{AskRemote, BlockDevice, Checked};
use control::{ControlError, Errno};

pub use options::{MOST_STORES, Options};

/// Puts the layer above `below`, whose pages must be encrypted already. Asks each store whether it
/// can be written, read, and deleted from. Also returns what tells how much is there. Any thread
/// may call it. The device ends when the last reference goes, that of the second value included:
/// that deletes its objects, and takes ten seconds at most if stores do not answer.
///
/// An operation may take as long as the deadlines of all stores together. A read fails with
/// [`block::IoError::Corrupt`] if a store returned something else than was written, and with
/// [`block::IoError::Failed`] if none answered. A change of a chunk that is away fails with the
/// same errors if it cannot come back; nothing has changed then. What was discarded reads as zeroes
/// if it was away, and otherwise as on the device below.
///
/// # Errors
/// `EINVAL` for a URI that names no store, or a device whose blocks are not multiples of 4096
/// bytes; `EIO` if a store does not work, with what it said.
pub fn open(
    below: Arc<dyn BlockDevice>,
    options: &Options,
) -> Result<(Arc<dyn BlockDevice>, AskRemote), ControlError> {
    let block = below.geometry().minimum_block;
    if block == 0 || !(block as usize).is_multiple_of(exchange::BLOCK) {
        let message = format!("a device with blocks of {block} bytes cannot be at remote stores");
        return Err(ControlError::new(Errno::EINVAL, message));
    }
    let device = Arc::new(mover::start(below, options)?);
    let asked = device.clone();
    Ok((Arc::new(Checked::new(device)), Arc::new(move || asked.stats())))
}
