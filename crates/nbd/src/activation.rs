//! Sockets passed at start, as `sd_listen_fds(3)` describes.

use std::io;
use std::os::fd::{AsFd, RawFd};

use crate::{Listener, Stream, sys};

/// The first descriptor passed: SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;
/// A limit above any real number of passed sockets.
const MOST: RawFd = 1024;

/// A socket passed at start.
#[derive(Debug)]
pub enum Activated {
    /// A listening socket.
    Listener(Listener),
    /// The connection of one client (`Accept=yes`).
    Connected(Stream),
}

/// Takes the sockets that `LISTEN_PID` and `LISTEN_FDS` pass to this process. The list is empty
/// when the process was started in another way. Call it once, before the process opens other
/// descriptors.
///
/// # Errors
/// An error when `LISTEN_FDS` is not a number of open sockets; the text shows its value.
pub fn activated() -> io::Result<Vec<Activated>> {
    let variable = |name| std::env::var(name).ok();
    let count = passed(
        variable("LISTEN_PID").as_deref(),
        variable("LISTEN_FDS").as_deref(),
        std::process::id(),
    );
    let count = count.map_err(|text| io::Error::new(io::ErrorKind::InvalidInput, text))?;
    (FIRST..FIRST + count).map(adopt).collect()
}

/// The number of sockets passed to process `own`.
pub(crate) fn passed(pid: Option<&str>, fds: Option<&str>, own: u32) -> Result<RawFd, String> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(0) };
    // A child inherits the variables: `LISTEN_PID` names the process they are for.
    if pid.parse() != Ok(own) {
        return Ok(0);
    }
    match fds.parse() {
        Ok(count) if (0..=MOST).contains(&count) => Ok(count),
        _ => Err(format!("LISTEN_FDS is {fds:?}; it must be a number from 0 to {MOST}")),
    }
}

fn adopt(fd: RawFd) -> io::Result<Activated> {
    let name = |error: io::Error| {
        let text = format!("descriptor {fd} of LISTEN_FDS is not an open socket: {error}");
        io::Error::new(error.kind(), text)
    };
    let owned = sys::adopt(fd).map_err(name)?;
    let listening = sys::socket_option(owned.as_fd(), libc::SO_ACCEPTCONN).map_err(name)?;
    if listening != 0 {
        Ok(Activated::Listener(Listener::listening(owned)))
    } else if sys::socket_option(owned.as_fd(), libc::SO_DOMAIN)? == libc::AF_UNIX {
        Stream::new(owned).map(Activated::Connected)
    } else {
        Ok(Activated::Connected(Stream::from(std::net::TcpStream::from(owned))))
    }
}
