//! Encrypts what a device below keeps, and finds what that device changed.
//!
//! [`Sealed`] is a layer over a backing file or device. Each block of 4096 bytes is encrypted and
//! authenticated with AES-256-GCM (crate `ring`). The key is random, lives in locked memory, and
//! ends with the layer: so nothing on the device can be read after the end of the process, however
//! it ended. A layer that is made to outlive the process ([`Sealed::kept`]) has its key in a file
//! of secret memory, and its seals in a file in memory. They end when nobody has the files any
//! more.
//!
//! # Definitions
//! A *seal* is what is needed to open a block: the number of its write and the tag. Seals are kept
//! in memory, 24 bytes a block, so blocks on the device keep their size.
//!
//! # Invariants
//! * A block opens only with the seal of its last write, at its own place. A block that is torn,
//!   old, of another place, or changed by a bit is [`IoError::Corrupt`], and never data.
//! * A nonce is the place of the block and the number of the write, and is never used twice.
//! * A block that was never written reads as zeroes, whatever the device has there.
//! * A write that fails leaves the block as it was, if the device has not changed it.
//!
//! # Operations
//! Those of [`BlockDevice`]. Ranges are multiples of a page. Operations on one block must not
//! overlap.
//!
//! A write takes one of a few buffers that are made at the start, and no operation takes memory.
//!
//! [`StreamSealer`] and [`StreamOpener`] do the same for what is written once and read once, with a
//! key of the user's.
#![forbid(unsafe_code)]

mod buffers;
mod key;
mod sealed;
mod seals;
mod stream;

pub use key::draw;
pub use sealed::Sealed;
pub use seals::SEAL_BYTES;
pub use stream::{STREAM_LETTERS, StreamOpener, StreamSealer};

#[cfg(doc)]
use block::{BlockDevice, IoError};
