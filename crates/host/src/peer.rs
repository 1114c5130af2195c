//! Who is at the other end of a socket.
//!
//! # Why unsafe
//! getsockopt(2) takes a pointer. The safe wrapper of the foreign crate has no way to say that the
//! process is of another PID namespace, which the system says with the number 0.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Who is at the other end of a connected unix socket, as of when it connected or listened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process; `None` when it is not to be seen from here.
    pub pid: Option<u32>,
    /// Its effective user.
    pub user: u32,
}

/// Who is at the other end of a connected unix socket (`SO_PEERCRED`, unix(7)); who made the pair,
/// for one of a pair.
///
/// # Errors
/// The error of getsockopt(2).
pub fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (place, name) = ((&raw mut found).cast(), libc::SO_PEERCRED);
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: a structure and its length, which live until the call returns.
    match unsafe { libc::getsockopt(number, libc::SOL_SOCKET, name, place, &raw mut length) } {
        0 => Ok(Peer { pid: u32::try_from(found.pid).ok().filter(|it| *it > 0), user: found.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}
