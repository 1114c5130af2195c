//! The system calls that the standard library does not offer.
//!
//! # Why unsafe
//! Each function is one call into libc with arguments that only it can get wrong.

use std::ffi::{CString, c_int};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Receives once. Zero at the end of the stream.
#[inline]
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `into` is exclusively ours and as long as `len()` says.
    let got = unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sends once; a peer that has gone is an error, not a signal.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8], wait: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: `bytes` is readable and as long as `len()` says.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Ends one direction of a socket, or both; `how` is a `SHUT_` constant.
pub(crate) fn shutdown(fd: BorrowedFd<'_>, how: c_int) {
    // An error means that the peer has gone already: that is the wanted state.
    // SAFETY: takes no pointer.
    let _ = unsafe { libc::shutdown(fd.as_raw_fd(), how) };
}

/// The event to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
    /// Only the end of the connection, or its failure.
    Nothing,
}

/// Waits until one of `fds` is ready or broken, or for `milliseconds` (-1: for ever). Returns for
/// each whether it is.
pub(crate) fn wait<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    what: For,
    milliseconds: c_int,
) -> io::Result<[bool; N]> {
    let events = match what {
        For::Reading => libc::POLLIN,
        For::Writing => libc::POLLOUT,
        For::Nothing => 0,
    };
    let mut polled = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    // SAFETY: `polled` has N elements.
    let result = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    match checked(result) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Err(_) => Ok([false; N]),
        Ok(_) => Ok(polled.map(|fd| fd.revents != 0)),
    }
}

/// Waits until `fd` is ready or broken; an error when `end` passes first.
pub(crate) fn wait_until(fd: BorrowedFd<'_>, what: For, end: Instant) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Rounded up: a wait that ends too early would only be repeated.
        let milliseconds = i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1;
        if wait([fd], what, milliseconds)? == [true] {
            return Ok(());
        }
    }
}

/// An integer option of a socket; an error where `fd` is no socket.
pub(crate) fn socket_option(fd: BorrowedFd<'_>, option: c_int) -> io::Result<c_int> {
    self::option(fd, libc::SOL_SOCKET, option)
}

/// An integer option of a socket at a level; an error where `fd` is no socket.
pub(crate) fn option(fd: BorrowedFd<'_>, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = mem::size_of::<c_int>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: `value` and `length` are local, and `length` is the size of `value`.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, place, &raw mut length) };
    checked(result).map(|_| value)
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    let length = mem::size_of::<c_int>() as libc::socklen_t;
    let place = (&raw const value).cast();
    // SAFETY: `value` is local, and `length` is its size.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, place, length) }).map(drop)
}

/// Lets a send on a socket end, with what it has sent or EAGAIN, after `limit` of waiting.
pub(crate) fn set_send_timeout(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_usec: limit.subsec_micros().into(),
    };
    let length = mem::size_of::<libc::timeval>() as libc::socklen_t;
    let (option, place) = (libc::SO_SNDTIMEO, (&raw const time).cast());
    // SAFETY: `time` is local, and `length` is its size.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, place, length) };
    checked(result).map(drop)
}

/// The user at the other end of a connected unix socket.
pub(crate) fn peer_user(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = mem::size_of::<libc::ucred>() as libc::socklen_t;
    let (option, place) = (libc::SO_PEERCRED, (&raw mut peer).cast());
    // SAFETY: `peer` and `length` are local, and `length` is the size of `peer`.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, place, &raw mut length)
    };
    checked(result).map(|_| peer.uid)
}

/// Takes one connection off a listening socket.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let none = std::ptr::null_mut();
    // SAFETY: no address is asked for.
    let result =
        unsafe { libc::accept4(listener.as_raw_fd(), none, none.cast(), libc::SOCK_CLOEXEC) };
    // SAFETY: the descriptor is new, and nothing else has it.
    checked(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes `fd` non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer.
    let flags = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: takes no pointer.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// Tries to lock an open file (flock(2)); false when another process holds the lock.
pub(crate) fn try_lock(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: takes no pointer.
    match checked(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The user that this process acts as.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing and cannot fail (geteuid(2)).
    unsafe { libc::geteuid() }
}

/// The longest path of a unix socket, in bytes.
pub(crate) const SOCKET_PATH_MAX: usize =
    mem::size_of::<libc::sockaddr_un>() - mem::offset_of!(libc::sockaddr_un, sun_path) - 1;

/// Listens at a unix socket `path`. Only its owner can connect, from the start: Linux gives the
/// file the permissions that the socket had before `bind`.
pub(crate) fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let bytes = CString::new(path.as_os_str().as_bytes())?;
    let bytes = bytes.as_bytes_with_nul();
    if bytes.len() > SOCKET_PATH_MAX + 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: takes no pointer.
    let fd =
        checked(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new, and nothing else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: takes no pointer.
    checked(unsafe { libc::fchmod(fd, 0o600) })?;
    // SAFETY: all zeroes is an address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = mem::size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address has `length` bytes, and its path ends with a zero.
    checked(unsafe { libc::bind(fd, (&raw const address).cast(), length) })?;
    // SAFETY: takes no pointer.
    checked(unsafe { libc::listen(fd, 128) })?;
    Ok(socket)
}
