//! The ways in which devices and swap devices are reached.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How programs reach a device.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A block device if this machine and user allow one, and also NBD.
    Auto,
    /// A file through FUSE, and for root a block device (loop), without NBD.
    Fuse,
    /// Only NBD, on a Unix socket.
    Nbd,
    /// A block device by the driver ublk (Linux 6.4), and also NBD. Its size cannot change.
    Ublk,
}

/// How the kernel reaches a swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapTransport {
    /// The driver ublk: it needs no memory for a request.
    Ublk,
    /// A loop device on a FUSE file.
    Loop,
}
