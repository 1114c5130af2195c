//! Connections that wait for nobody: the standard library connects only with a wait, and a listener
//! whose queue is full would hold up the caller without end.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The longest path of a unix socket, in bytes (unix(7)).
pub const SOCKET_PATH_MAX: usize = 107;

/// Connects to a socket of this machine. It waits for nobody.
///
/// # Errors
/// The error of `socket(2)` or `connect(2)`; `EAGAIN` when as many connections wait to be accepted
/// as the listener allows; `EINVAL` for a path that is too long.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    if !(1..=SOCKET_PATH_MAX).contains(&path.as_os_str().len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Does a program listen at the socket `path`? True also if it takes no client at the moment.
#[must_use]
pub fn is_listening(path: &Path) -> bool {
    let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    !connect_at_once(path).is_err_and(|error| gone.contains(&error.kind()))
}

/// Does a program go on listening at the socket `path`? What a program has forked has its sockets
/// until it executes another one, and so may outlive it: half a second passes before the answer is
/// true.
#[must_use]
pub fn keeps_listening(path: &Path) -> bool {
    listens_after(path, sleep)
}

fn listens_after(path: &Path, mut pause: impl FnMut(Duration)) -> bool {
    for doublings in 0..9 {
        if !is_listening(path) {
            return false;
        }
        pause(Duration::from_millis(1 << doublings));
    }
    is_listening(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_listener_with_a_full_queue_holds_up_nobody() {
        let dir = testkit::TempDir::new();
        let path = dir.join("socket");
        assert!(!is_listening(&path), "nothing is there");
        let listener = UnixListener::bind(&path).unwrap();
        // The usual queue is longer than a process may have descriptors.
        rustix::net::listen(&listener, 4).unwrap();
        let mut queue = Vec::new();
        let full = loop {
            match connect_at_once(&path) {
                Ok(stream) => queue.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(is_listening(&path));
        drop(queue);
        drop(listener);
        // A copy of this process, as another test makes one, has the socket for a moment more.
        let until = Instant::now() + Duration::from_secs(60);
        while is_listening(&path) {
            assert!(Instant::now() < until, "only the file is left");
        }
    }

    #[test]
    fn a_listener_that_is_closed_a_moment_later_is_none() {
        let dir = testkit::TempDir::new();
        let path = dir.join("socket");
        let mut listener = Some(UnixListener::bind(&path).unwrap());
        assert!(is_listening(&path));
        let listens = listens_after(&path, |pause| {
            listener = None;
            sleep(pause);
        });
        assert!(!listens, "it was closed meanwhile");
    }
}
