//! Disks, served to other programs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use control::Errno;
use nbd::{ListenError, Listener, One, Options, Server};

use crate::{Disk, Error};

/// Another process listens there.
const EADDRINUSE: i32 = 98;

/// Where a server listens.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A Unix socket of this path, which only the user of the process may open. Nothing may be
    /// there.
    Unix(PathBuf),
    /// An address and port. Whoever reaches it may read and write the disk.
    Tcp(SocketAddr),
}

impl Disk {
    /// Serves the disk over NBD, on threads of the server, until it is dropped. `name` is that of
    /// the export, which is also the default one.
    ///
    /// # Errors
    /// [`Error::System`] if nothing can listen there.
    pub fn serve_nbd(&self, name: &str, at: &Address) -> Result<NbdServer, Error> {
        let listener = match at {
            Address::Unix(path) => Listener::unix(path),
            Address::Tcp(address) => Listener::tcp(*address),
        };
        let listener = listener.map_err(|error| {
            let errno = match &error {
                ListenError::Path(_, why) | ListenError::Address(_, why) => {
                    why.raw_os_error().unwrap_or(Errno::EINVAL.0)
                }
                ListenError::TooLong(_) => Errno::ENAMETOOLONG.0,
                _ => EADDRINUSE,
            };
            refused(&error, errno)
        })?;
        let tcp = listener.tcp_address();
        let export = One::new(name, "compressed disk", Arc::new(self.clone()));
        let start = || {
            let server = Server::new(Arc::new(export), Options::default())?;
            server.listen(listener)?;
            Ok(server)
        };
        let server = start().map_err(|error: io::Error| {
            refused(&error, error.raw_os_error().unwrap_or(Errno::ENOMEM.0))
        })?;
        Ok(NbdServer { server, tcp })
    }
}

fn refused(error: &dyn fmt::Display, errno: i32) -> Error {
    Error::System { errno, message: error.to_string().into() }
}

/// A server of a disk. Dropping it ends the connections after the requests that are under way.
pub struct NbdServer {
    server: Server,
    tcp: Option<SocketAddr>,
}

impl NbdServer {
    /// The address and port, of [`Address::Tcp`]: with port 0 the system chose one.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Clients that are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Ends the server: requests that came are answered, then its connections end.
    pub fn stop(&self) {
        self.server.shutdown();
    }

    /// Waits until the server has ended.
    pub fn join(&self) {
        self.server.join();
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.stop();
        self.join();
    }
}
