//! Bytes of a connected socket.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::{self, RecvFlags, SendFlags};

/// Receives once. Zero at the end of the stream.
#[inline]
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    Ok(net::recv(fd, into, flags)?.0)
}

/// Sends once; a peer that has gone is an error, not a signal.
#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8], wait: bool) -> io::Result<usize> {
    let flags = if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    Ok(net::send(fd, bytes, flags | SendFlags::NOSIGNAL)?)
}
