//! The descriptors that connect a daemon with others, besides its mounts.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// The name of the descriptor of the mount of the files, and the name of that mount in the table.
pub(super) const FILES: (&str, &str) = ("rampack.mount.files", "files");

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

/// The address of a TCP socket that listens; None for another descriptor.
pub(super) fn address_of_socket(fd: &OwnedFd) -> Option<SocketAddr> {
    TcpListener::from(fd.try_clone().ok()?).local_addr().ok()
}
