//! The stream to a client: a socket or two pipes.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::sys::{self, For};

/// A connected client: a stream socket, or a pair of pipes.
#[derive(Debug)]
pub struct Stream(Kind);

#[derive(Debug)]
enum Kind {
    Socket(OwnedFd),
    Pipes { input: File, output: File },
}

impl Stream {
    /// Takes a connected stream socket, or another descriptor that reads and writes both ways.
    ///
    /// # Errors
    /// An error when the process has no descriptor left.
    pub fn new(fd: OwnedFd) -> io::Result<Stream> {
        if sys::socket_option(fd.as_fd(), libc::SO_TYPE).is_ok() {
            return Ok(Stream(Kind::Socket(fd)));
        }
        let output = File::from(fd.try_clone()?);
        Ok(Stream(Kind::Pipes { input: File::from(fd), output }))
    }

    /// Receives from `input` and sends to `output`.
    #[must_use]
    pub fn pair(input: OwnedFd, output: OwnedFd) -> Stream {
        Stream(Kind::Pipes { input: File::from(input), output: File::from(output) })
    }

    /// Standard input and output, as inetd and `nbdinfo [ command ]` connect them. Nothing else
    /// may read or print there.
    ///
    /// # Errors
    /// An error when they are closed, or the process has no descriptor left.
    pub fn stdio() -> io::Result<Stream> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        // Usually one socket is both; the socket calls are faster.
        if sys::socket_option(input.as_fd(), libc::SO_TYPE).is_ok() {
            return Ok(Stream(Kind::Socket(input)));
        }
        Ok(Stream::pair(input, io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// Receives the available bytes; waits for the first byte. Zero at the end of the stream.
    #[inline]
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match &self.0 {
                Kind::Socket(fd) => sys::receive(fd.as_fd(), into, true),
                Kind::Pipes { input, .. } => (&*input).read(into),
            };
            match received {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    sys::wait([self.input()], For::Reading, -1)?;
                }
                other => return other,
            }
        }
    }

    /// Receives the available bytes without waiting; None when there are none, and always for
    /// pipes.
    #[inline]
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Kind::Socket(fd) = &self.0 else { return Ok(None) };
        match sys::receive(fd.as_fd(), into, false) {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends all of it.
    #[inline]
    pub(crate) fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = match &self.0 {
                Kind::Socket(fd) => sys::send(fd.as_fd(), bytes),
                Kind::Pipes { output, .. } => (&*output).write(bytes),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let output = match &self.0 {
                        Kind::Socket(fd) => fd.as_fd(),
                        Kind::Pipes { output, .. } => output.as_fd(),
                    };
                    sys::wait([output], For::Writing, -1)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for a byte to receive; an error when `end` passes first.
    pub(crate) fn wait_until(&self, end: Instant) -> io::Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            // Rounded up: a wait that ends too early would only be repeated.
            let milliseconds = i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1;
            if sys::wait([self.input()], For::Reading, milliseconds)? == [true] {
                return Ok(());
            }
        }
    }

    fn input(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Socket(fd) => fd.as_fd(),
            Kind::Pipes { input, .. } => input.as_fd(),
        }
    }

    /// Called before a receive; true when `stop` came first. [`Stream::stop_receiving`] wakes a
    /// socket, so a socket needs no system call here; for pipes the thread polls `stop` too.
    #[inline]
    pub(crate) fn stopped(&self, stop: BorrowedFd<'_>) -> io::Result<bool> {
        match &self.0 {
            Kind::Socket(_) => Ok(false),
            Kind::Pipes { .. } => loop {
                let [_, stopped] = match sys::wait([self.input(), stop], For::Reading, -1)? {
                    [false, false] => continue,
                    ready => ready,
                };
                return Ok(stopped);
            },
        }
    }

    /// Wakes the receiving thread; replies can still be sent.
    pub(crate) fn stop_receiving(&self) {
        if let Kind::Socket(fd) = &self.0 {
            sys::shutdown(fd.as_fd(), libc::SHUT_RD);
        }
    }

    /// Wakes the receiving thread and the sending thread.
    pub(crate) fn cut(&self) {
        if let Kind::Socket(fd) = &self.0 {
            sys::shutdown(fd.as_fd(), libc::SHUT_RDWR);
        }
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Stream {
        Stream(Kind::Socket(socket.into()))
    }
}

impl From<std::net::TcpStream> for Stream {
    /// Turns off Nagle's algorithm: each send is a complete batch of replies.
    fn from(socket: std::net::TcpStream) -> Stream {
        // On an error the connection works, only slower.
        let _ = socket.set_nodelay(true);
        Stream(Kind::Socket(socket.into()))
    }
}
