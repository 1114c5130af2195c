//! The stream to a client: a socket, with TLS or without, or two pipes.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use host::{For, wait, wait_until};
use rustix::net::{Shutdown, shutdown, sockopt};

use crate::peer::Peer;
use crate::socket::{receive, send};
use crate::tls::{Channel, Tls};

/// How often a thread that waits for a client looks whether it should go on waiting.
const LOOK: Duration = Duration::from_millis(500);
/// What a pipe that is ready takes without a wait, in bytes (PIPE_BUF, pipe(7)).
const PIPE_PIECE: usize = 4096;
/// After this without a sign of life a peer is asked for one.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// It is asked this often before it counts as gone.
const KEEPALIVE_PROBES: u32 = 4;
/// The time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A peer that acknowledges nothing, or takes nothing, for this many milliseconds is gone.
const USER_TIMEOUT: u32 = 120_000;

/// A connected client: a stream socket, or a pair of pipes.
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    peer: Peer,
    tls: OnceLock<Box<Channel>>,
}

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
        if sockopt::socket_type(&fd).is_ok() {
            return Ok(Stream::socket(fd));
        }
        let output = fd.try_clone()?;
        Ok(Stream::pair(fd, output))
    }

    /// A send that makes no progress returns from time to time, so that its thread can look whether
    /// it should go on.
    fn socket(fd: OwnedFd) -> Stream {
        // On an error a send waits as long as it takes.
        let _ = sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(LOOK));
        let (peer, fd) = Peer::of(fd);
        Stream { kind: Kind::Socket(fd), peer, tls: OnceLock::new() }
    }

    /// Receives from `input` and sends to `output`.
    #[must_use]
    pub fn pair(input: OwnedFd, output: OwnedFd) -> Stream {
        let kind = Kind::Pipes { input: File::from(input), output: File::from(output) };
        Stream { kind, peer: Peer::Own, tls: OnceLock::new() }
    }

    /// Standard input and output, as inetd and `nbdinfo [ command ]` connect them. Nothing else
    /// may read or print there.
    ///
    /// # Errors
    /// An error when they are closed, or the process has no descriptor left.
    pub fn stdio() -> io::Result<Stream> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        // Usually one socket is both; the socket calls are faster.
        if sockopt::socket_type(&input).is_ok() {
            return Ok(Stream::socket(input));
        }
        Ok(Stream::pair(input, io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// Receives the available bytes; waits for the first byte. Zero at the end of the stream.
    #[inline]
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match (&self.kind, self.tls.get()) {
                (Kind::Socket(fd), None) => receive(fd.as_fd(), into, true),
                (Kind::Socket(fd), Some(channel)) => channel.receive(fd.as_fd(), into),
                (Kind::Pipes { input, .. }, _) => (&*input).read(into),
            };
            match received {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait([self.input()], For::Reading, None)?;
                }
                other => return other,
            }
        }
    }

    /// Receives the available bytes without waiting; None when there are none, and always for
    /// pipes.
    #[inline]
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Kind::Socket(fd) = &self.kind else { return Ok(None) };
        let received = match self.tls.get() {
            None => receive(fd.as_fd(), into, false),
            Some(channel) => channel.receive(fd.as_fd(), into),
        };
        match received {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends all of it, and waits for the client, if `end` is given until then.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when `end` has passed; the error of the system call.
    #[inline]
    pub(crate) fn send_all(&self, mut bytes: &[u8], end: Option<Instant>) -> io::Result<()> {
        loop {
            let sent = match (&self.kind, self.tls.get()) {
                _ if bytes.is_empty() => match self.flush_now()? {
                    true => return Ok(()),
                    false => Err(ErrorKind::WouldBlock.into()),
                },
                (Kind::Socket(fd), None) => send(fd.as_fd(), bytes, true),
                (Kind::Socket(fd), Some(channel)) => channel.send(fd.as_fd(), bytes),
                (Kind::Pipes { output, .. }, _) => (&*output).write(bytes),
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if end.is_some_and(|end| Instant::now() >= end) {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    wait([self.output()], For::Writing, Some(LOOK))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends as much as the client takes without a wait, and returns how many bytes; 0 if none.
    /// With TLS some of these bytes may remain until [`Stream::flush_now`].
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match (&self.kind, self.tls.get()) {
            (Kind::Socket(fd), None) => send(fd.as_fd(), bytes, false),
            (Kind::Socket(fd), Some(channel)) => channel.send(fd.as_fd(), bytes),
            (Kind::Pipes { output, .. }, _) => {
                match wait([output.as_fd()], For::Writing, Some(Duration::ZERO))? {
                    [true] => (&*output).write(&bytes[..bytes.len().min(PIPE_PIECE)]),
                    [false] => return Ok(0),
                }
            }
        };
        match sent {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Does something come, or is the client gone, within a short time? Always true for pipes.
    pub(crate) fn is_ready_soon(&self) -> io::Result<bool> {
        let Kind::Socket(fd) = &self.kind else { return Ok(true) };
        if self.has_some() {
            return Ok(true);
        }
        Ok(wait([fd.as_fd()], For::Reading, Some(LOOK))? == [true])
    }

    /// Whose it is.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Did it come over a network?
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.peer, Peer::Address(_))
    }

    /// Can another thread end it?
    pub(crate) fn can_be_cut(&self) -> bool {
        matches!(self.kind, Kind::Socket(_))
    }

    /// Waits for a byte to receive; an error when `end` passes first, or has passed already. A part
    /// of a record of TLS is none.
    pub(crate) fn wait_until(&self, end: Instant) -> io::Result<()> {
        if Instant::now() >= end {
            return Err(ErrorKind::TimedOut.into());
        }
        while !self.has_some() {
            if !wait_until(self.input(), For::Reading, end)? {
                return Err(ErrorKind::TimedOut.into());
            }
            let Some(channel) = self.tls.get() else { break };
            if channel.take_in(self.input())? {
                break;
            }
        }
        Ok(())
    }

    /// Goes on in TLS, after a handshake until `end` at most.
    ///
    /// # Errors
    /// An error for pipes, and when the handshake fails.
    pub(crate) fn start_tls(&self, tls: &Tls, end: Instant) -> io::Result<()> {
        let Kind::Socket(fd) = &self.kind else { return Err(ErrorKind::Unsupported.into()) };
        let channel = Channel::accept(tls, fd.as_fd(), end)?;
        // The protocol starts it once.
        let _ = self.tls.set(Box::new(channel));
        Ok(())
    }

    /// Ends TLS, if the client takes that now.
    pub(crate) fn say_goodbye(&self) {
        if let Some(channel) = self.tls.get() {
            channel.close(self.output());
        }
    }

    /// Has something arrived that the socket does not show any more?
    fn has_some(&self) -> bool {
        self.tls.get().is_some_and(|channel| channel.has_some())
    }

    /// Sends what was taken by an earlier send; false if the client does not take all of it now.
    pub(crate) fn flush_now(&self) -> io::Result<bool> {
        match self.tls.get() {
            Some(channel) => channel.flush(self.output()),
            None => Ok(true),
        }
    }

    fn input(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Socket(fd) => fd.as_fd(),
            Kind::Pipes { input, .. } => input.as_fd(),
        }
    }

    fn output(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Socket(fd) => fd.as_fd(),
            Kind::Pipes { output, .. } => output.as_fd(),
        }
    }

    /// Called before a receive; true when `stop` came first. [`Stream::stop_receiving`] wakes a
    /// socket, so a socket needs no system call here; for pipes the thread polls `stop` too.
    #[inline]
    pub(crate) fn stopped(&self, stop: BorrowedFd<'_>) -> io::Result<bool> {
        match &self.kind {
            Kind::Socket(_) => Ok(false),
            Kind::Pipes { .. } => loop {
                let [_, stopped] = match wait([self.input(), stop], For::Reading, None)? {
                    [false, false] => continue,
                    ready => ready,
                };
                return Ok(stopped);
            },
        }
    }

    /// Wakes the receiving thread; replies can still be sent. An error means that the peer has gone
    /// already.
    pub(crate) fn stop_receiving(&self) {
        if let Kind::Socket(fd) = &self.kind {
            let _ = shutdown(fd, Shutdown::Read);
        }
    }

    /// Wakes the receiving thread and the sending thread. An error as for the receiving thread.
    pub(crate) fn cut(&self) {
        if let Kind::Socket(fd) = &self.kind {
            let _ = shutdown(fd, Shutdown::Both);
        }
    }
}

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Stream {
        Stream::socket(socket.into())
    }
}

impl From<std::net::TcpStream> for Stream {
    /// Turns off Nagle's algorithm: each send is a complete batch of replies. A peer that has gone
    /// without a word is noticed after two minutes.
    fn from(socket: std::net::TcpStream) -> Stream {
        // On an error the connection works, only slower, or a dead peer keeps its place.
        let _ = socket.set_nodelay(true);
        let fd = OwnedFd::from(socket);
        let _ = sockopt::set_socket_keepalive(&fd, true);
        let _ = sockopt::set_tcp_keepidle(&fd, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&fd, KEEPALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(&fd, KEEPALIVE_PROBES);
        let _ = sockopt::set_tcp_user_timeout(&fd, USER_TIMEOUT);
        Stream::socket(fd)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_tcp_peer_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Stream::from(listener.accept().unwrap().0);
        assert!(stream.is_remote());
        assert!(sockopt::socket_keepalive(stream.input()).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(stream.input()).unwrap(), USER_TIMEOUT);
    }
}
