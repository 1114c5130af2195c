//! The ways in which devices and swap devices are reached.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How programs reach a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Transport {
    /// A block device if this machine and user allow one, and also NBD.
    #[default]
    Auto,
    /// A file through FUSE, and for root a block device (loop), without NBD.
    Fuse,
    /// The same; its requests are read from /dev/fuse.
    FuseClassic,
    /// The same; its requests come by io_uring.
    FuseRing,
    /// Only NBD, on a Unix socket.
    Nbd,
    /// A block device by the driver ublk (Linux 6.4), and also NBD. Its size cannot change.
    Ublk,
}

impl Transport {
    /// Are devices reached by FUSE, and not by NBD?
    #[must_use]
    pub fn is_fuse(self) -> bool {
        matches!(self, Transport::Fuse | Transport::FuseClassic | Transport::FuseRing)
    }
}

/// How the kernel reaches a swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapTransport {
    /// The driver ublk: it needs no memory for a request.
    Ublk,
    /// A loop device on a FUSE file, whose requests come by io_uring if they can.
    Loop,
    /// A loop device on a FUSE file, whose requests are read from /dev/fuse.
    LoopClassic,
    /// A loop device on a FUSE file, whose requests come by io_uring.
    LoopRing,
}

/// What of the kernel takes pages before a swap device does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Front {
    /// Its zswap: the swap device gets the oldest pages.
    Zswap,
}

/// How devices are served to virtual machines, by vhost-user-blk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VhostOptions {
    /// The user whose sockets they are, instead of the daemon's own: the only one, beside root, who
    /// can connect.
    pub owner: Option<u32>,
}

/// How NBD is served.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NbdOptions {
    /// Also on TCP, at this address. Whoever reaches it can read and write the devices.
    pub tcp: Option<SocketAddr>,
    /// On TCP with TLS only, with `server-cert.pem` and `server-key.pem` in this directory.
    pub tls_certificates: Option<PathBuf>,
    /// Only for clients with a certificate of the authority in `ca-cert.pem` there.
    pub tls_verify_peer: bool,
    /// Read-only.
    pub read_only: bool,
    /// On the Unix socket also for these users, beside the daemon's own and root.
    pub allow_uid: Vec<u32>,
}
