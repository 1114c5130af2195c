//! Listening sockets.

use core::fmt;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use host::{SOCKET_PATH_MAX, flags, is_at};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use crate::Stream;
use crate::peer::Peer;
use crate::refusal::Refusal;

/// How many clients may wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket. Dropping it removes the file of a unix socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    tcp: bool,
    /// Who may connect besides this process's user and root; None for a socket of TCP or of a
    /// service manager.
    allowed: Option<Vec<u32>>,
    file: Option<SocketFile>,
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
    /// Another process of this user was about to listen there for more than a second.
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
                let (path, most) = (path.display(), SOCKET_PATH_MAX);
                write!(f, "{path}: the path of a unix socket is at most {most} bytes long")
            }
            Self::Locked(path) => {
                write!(f, "{}: another process keeps {0}.lock locked", path.display())
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
    /// Listens at a unix socket `path`. Only this process's user and root may connect (mode 0600
    /// from the start). A socket that a killed server left at `path` is replaced.
    ///
    /// # Errors
    /// [`ListenError`]; [`ListenError::InUse`] when a server answers at `path`.
    pub fn unix(path: &Path) -> Result<Listener, ListenError> {
        Listener::unix_for(path, &[])
    }

    /// As [`Listener::unix`]; the users `allowed`, by their numbers, may connect, too. If there are
    /// any, every user may try (mode 0666): the server asks the kernel who it is (`SO_PEERCRED`,
    /// unix(7)).
    ///
    /// # Errors
    /// As [`Listener::unix`].
    pub fn unix_for(path: &Path, allowed: &[u32]) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Path(path.to_path_buf(), error);
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(ListenError::TooLong(path.to_path_buf()));
        }
        // Two servers may find the same stale socket: the lock keeps one from removing the other's
        // new one.
        let _lock = PathLock::new(path)?;
        let fd = match listen_at(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                listen_at(path).map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        Listener::at(path, fd, allowed)
    }

    /// Opens a socket that listens at `path` to those who may connect, and to nobody else.
    fn at(path: &Path, fd: OwnedFd, allowed: &[u32]) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Path(path.to_path_buf(), error);
        let file = SocketFile::new(path).map_err(failed)?;
        if !fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket() {
            return Err(ListenError::NotASocket(path.to_path_buf()));
        }
        let mode = if allowed.is_empty() { 0o600 } else { 0o666 };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
        Ok(Listener { fd, tcp: false, allowed: Some(allowed.to_vec()), file: Some(file) })
    }

    /// Goes on listening at the unix socket `path` of a process that died: `fd` is the socket,
    /// which somebody kept open meanwhile. Clients that connected since wait in its queue.
    /// Whoever could connect before, those of [`Listener::unix_for`] can from now on.
    ///
    /// # Errors
    /// [`ListenError::Path`] if `fd` is not a socket that listens at `path`, or if there is no
    /// file.
    pub fn unix_kept(fd: OwnedFd, path: &Path, allowed: &[u32]) -> Result<Listener, ListenError> {
        let failed = |error| ListenError::Path(path.to_path_buf(), error);
        let other = |text: &str| failed(io::Error::new(ErrorKind::InvalidInput, text));
        let listens = socket_acceptconn(&fd).map_err(|error| failed(error.into()))?;
        let socket = UnixListener::from(fd);
        let address = socket.local_addr().map_err(failed)?;
        if !listens || address.as_pathname() != Some(path) {
            return Err(other("the descriptor that was kept is not this socket"));
        }
        Listener::at(path, socket.into(), allowed)
    }

    /// Listens at a TCP address. NBD has no password: any client that reaches the address can use
    /// the device.
    ///
    /// # Errors
    /// [`ListenError::Address`].
    pub fn tcp(address: SocketAddr) -> Result<Listener, ListenError> {
        let socket = TcpListener::bind(address).map_err(|e| ListenError::Address(address, e))?;
        Ok(Listener { fd: socket.into(), tcp: true, allowed: None, file: None })
    }

    /// Takes a socket that already listens, as socket activation passes it.
    #[must_use]
    pub fn listening(fd: OwnedFd) -> Listener {
        let domain = socket_domain(&fd).unwrap_or(AddressFamily::UNIX);
        Listener { fd, tcp: domain != AddressFamily::UNIX, allowed: None, file: None }
    }

    /// The address of a TCP socket; if port 0 was asked for, with the port that the system chose.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        let socket = self.tcp.then(|| self.fd.try_clone().ok())??;
        TcpListener::from(socket).local_addr().ok()
    }

    /// Closes it, and leaves the file of a unix socket.
    pub(crate) fn leave(mut self) {
        if let Some(file) = &mut self.file {
            file.identity = None;
        }
    }

    /// Takes one client, or the reason why it may not connect.
    pub(crate) fn accept(&self) -> io::Result<Result<Stream, Refusal>> {
        let fd = accept_with(&self.fd, SocketFlags::CLOEXEC)?;
        let stream = if self.tcp { Stream::from(TcpStream::from(fd)) } else { Stream::new(fd)? };
        match (stream.peer(), &self.allowed) {
            (Peer::User(user), Some(allowed)) if !allowed.contains(&user) => {
                Ok(Err(Refusal::Stranger(user)))
            }
            _ => Ok(Ok(stream)),
        }
    }
}

/// Listens at a unix socket `path`. Only its owner can connect, from the start: Linux gives the
/// file the permissions that the socket had before `bind`.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A lock on a path against other servers that are about to listen there: a locked file beside it,
/// which only its owner can open. It is removed with the lock.
#[derive(Debug)]
struct PathLock {
    file: File,
    path: PathBuf,
}

impl PathLock {
    /// Takes the lock. Without one, and without an error, if the file cannot be made or is another
    /// user's: such a user could hold it for ever.
    fn new(path: &Path) -> Result<Option<PathLock>, ListenError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(flags::O_NOFOLLOW | flags::O_NONBLOCK);
        for _ in 0..100 {
            let Ok(file) = options.open(&lock) else { return Ok(None) };
            match file.metadata() {
                Ok(opened) if opened.is_file() && opened.uid() == host::effective_user() => {}
                _ => return Ok(None),
            }
            match file.try_lock() {
                // The holder before may have removed the file since: then this lock binds nobody.
                Ok(()) if is_at(&file, &lock) => {
                    return Ok(Some(PathLock { file, path: lock }));
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::Error(_)) => return Ok(None),
            }
        }
        Err(ListenError::Locked(path.to_path_buf()))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // The lock is held until the file is closed, so nobody has locked a new one.
        if is_at(&self.file, &self.path) {
            // An error is ignored here; the next server takes the file that is there.
            let _ = fs::remove_file(&self.path);
        }
    }
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
    match host::keeps_listening(path) {
        true => Err(ListenError::InUse(path.to_path_buf())),
        false => fs::remove_file(path).map_err(failed),
    }
}

/// The file of a unix socket.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// None if it is to stay.
    identity: Option<(u64, u64)>,
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: std::path::absolute(path)?, identity: Some(identity(path)?) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If our socket was removed, the path may now be another server's.
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            // An error is ignored here; the next server removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}
