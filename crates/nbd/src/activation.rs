//! Sockets that a service manager made and hands over at start (sd_listen_fds(3)).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};

use crate::{Listener, Stream};

/// A socket passed at start.
#[derive(Debug)]
pub enum Activated {
    /// A listening socket.
    Listener(Listener),
    /// The connection of one client (`Accept=yes`).
    Connected(Stream),
}

impl Activated {
    /// The socket behind a descriptor that was handed over.
    ///
    /// # Errors
    /// The error of getsockopt(2), for what is no socket too.
    pub fn of(fd: OwnedFd) -> io::Result<Activated> {
        if socket_acceptconn(&fd)? {
            Ok(Activated::Listener(Listener::listening(fd)))
        } else if socket_domain(&fd)? == AddressFamily::UNIX {
            Stream::new(fd).map(Activated::Connected)
        } else {
            Ok(Activated::Connected(Stream::from(std::net::TcpStream::from(fd))))
        }
    }
}
