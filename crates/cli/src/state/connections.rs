//! The descriptors that connect a daemon with others, besides its mounts.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// What the daemon before left besides regions and mounts.
pub(super) const CONNECTIONS: [Connection; 4] =
    [Connection::Control, Connection::Nbd, Connection::NbdTcp, Connection::Helpers];

/// A descriptor that connects the daemon with others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Connection {
    /// The socket of commands.
    Control,
    /// The Unix socket of NBD.
    Nbd,
    /// The TCP socket of NBD.
    NbdTcp,
    /// A pipe that helpers have the other end of.
    Helpers,
}

impl Connection {
    /// The name of its descriptor.
    pub(super) fn name(self) -> &'static str {
        match self {
            Connection::Control => "rampack.listen.control",
            Connection::Nbd => "rampack.listen.nbd",
            Connection::NbdTcp => "rampack.listen.nbd-tcp",
            Connection::Helpers => "rampack.helpers",
        }
    }
}

/// The path of a Unix socket that listens; None for another descriptor.
pub(super) fn path_of_socket(fd: &OwnedFd) -> Option<PathBuf> {
    let socket = UnixListener::from(fd.try_clone().ok()?);
    Some(socket.local_addr().ok()?.as_pathname()?.to_owned())
}
