//! Listening sockets.

use core::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use crate::{Stream, sys};

/// A listening socket. Dropping it removes the file of a unix socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    tcp: bool,
    _file: Option<SocketFile>,
}

/// Why a server cannot listen at a socket. The text names the path or address.
#[derive(Debug)]
pub enum ListenError {
    /// A server answers at this path.
    InUse(PathBuf),
    /// The path exists and is not a socket.
    NotASocket(PathBuf),
    /// The path is longer than the system allows for a socket.
    TooLong(PathBuf),
    /// Another process held the directory's lock for more than a second.
    Locked(PathBuf),
    /// The system refused.
    Path(PathBuf, io::Error),
    /// The system refused.
    Address(SocketAddr, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path}: another server is listening there; stop it or choose another path"
                )
            }
            Self::NotASocket(path) => {
                write!(f, "{}: exists and is not a socket; it was left alone", path.display())
            }
            Self::TooLong(path) => {
                let (path, most) = (path.display(), sys::SOCKET_PATH_MAX);
                write!(f, "{path}: the path of a unix socket is at most {most} bytes long")
            }
            Self::Locked(path) => {
                write!(f, "{}: another process keeps its directory locked", path.display())
            }
            Self::Path(path, error) => write!(f, "{}: cannot listen: {error}", path.display()),
            Self::Address(address, error) => write!(f, "{address}: cannot listen: {error}"),
        }
    }
}

impl core::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Path(_, error) | Self::Address(_, error) => Some(error),
            _ => None,
        }
    }
}

impl Listener {
    /// Listens at a unix socket `path`. Only its owner may connect (mode 0600 from the start). A
    /// socket that a killed server left at `path` is replaced.
    ///
    /// # Errors
    /// [`ListenError`]; [`ListenError::InUse`] when a server answers at `path`.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Path(path.to_path_buf(), error);
        if path.as_os_str().len() > sys::SOCKET_PATH_MAX {
            return Err(ListenError::TooLong(path.to_path_buf()));
        }
        // Two servers may find the same stale socket: the lock keeps one from removing the other's
        // new one.
        let _lock = lock_directory(path)?;
        let fd = match sys::listen_unix(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                sys::listen_unix(path).map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        let file = SocketFile::new(path).map_err(failed)?;
        Ok(Listener { fd, tcp: false, _file: Some(file) })
    }

    /// Listens at a TCP address. NBD has no password: any client that reaches the address can use
    /// the device.
    ///
    /// # Errors
    /// [`ListenError::Address`].
    pub fn tcp(address: SocketAddr) -> Result<Listener, ListenError> {
        let socket = TcpListener::bind(address).map_err(|e| ListenError::Address(address, e))?;
        Ok(Listener { fd: socket.into(), tcp: true, _file: None })
    }

    /// Takes a socket that already listens, as socket activation passes it.
    #[must_use]
    pub fn listening(fd: OwnedFd) -> Listener {
        let domain = sys::socket_option(fd.as_fd(), libc::SO_DOMAIN).unwrap_or(libc::AF_UNIX);
        Listener { fd, tcp: domain != libc::AF_UNIX, _file: None }
    }

    /// The address of a TCP socket; if port 0 was asked for, with the port that the system chose.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        let socket = self.tcp.then(|| self.fd.try_clone().ok())??;
        TcpListener::from(socket).local_addr().ok()
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        let fd = sys::accept(self.fd.as_fd())?;
        if self.tcp { Ok(Stream::from(TcpStream::from(fd))) } else { Stream::new(fd) }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Locks the directory of `path` against other servers that are about to listen in it. If the
/// directory cannot be opened, there is no lock.
fn lock_directory(path: &Path) -> Result<Option<File>, ListenError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Ok(directory) = File::open(parent) else { return Ok(None) };
    for _ in 0..100 {
        match sys::try_lock(directory.as_fd()) {
            Ok(true) => return Ok(Some(directory)),
            Ok(false) => thread::sleep(Duration::from_millis(10)),
            Err(_) => return Ok(None),
        }
    }
    Err(ListenError::Locked(path.to_path_buf()))
}

/// Removes the socket at `path` if no server listens there any more.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::Path(path.to_path_buf(), error);
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !kind.is_socket() {
        return Err(ListenError::NotASocket(path.to_path_buf()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        // The connection was made, or refused with an error that only a live listener causes.
        _ => Err(ListenError::InUse(path.to_path_buf())),
    }
}

/// The file of a unix socket.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: std::path::absolute(path)?, identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If our socket was removed, the path may now be another server's.
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // An error is ignored here; the next server removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}
