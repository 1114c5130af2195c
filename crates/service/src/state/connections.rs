//! The descriptors that connect a daemon with others, besides those of swap devices.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use kept::Mount;

/// All of them.
pub(super) const CONNECTIONS: [Connection; 5] = [
    Connection::Control,
    Connection::Nbd,
    Connection::NbdTcp,
    Connection::Helpers,
    Connection::Files,
];

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
    /// The mount of the files.
    Files,
}

impl Connection {
    /// The name of its descriptor.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Connection::Control => "rampack.listen.control",
            Connection::Nbd => "rampack.listen.nbd",
            Connection::NbdTcp => "rampack.listen.nbd-tcp",
            Connection::Helpers => "rampack.helpers",
            Connection::Files => "rampack.mount.files",
        }
    }

    /// Does the table name it among the mounts?
    pub(super) fn is_mount(self) -> bool {
        self == Connection::Files
    }
}

/// The mount of the files in the table.
pub(super) fn mount(files: &BTreeMap<String, u64>) -> Mount {
    let descriptor = Connection::Files.name().to_owned();
    Mount { name: "files".to_owned(), descriptor, files: files.clone() }
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
