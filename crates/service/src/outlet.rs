//! Standard output and standard error of a daemon, which nobody may read.
//!
//! A pipe that nobody reads and a stopped terminal take no more text after a while, and a write
//! then waits without end. No thread of a daemon may wait for that: it would take no signal and
//! answer no client. So a text waits here for a second at most and is dropped then. The next texts
//! wait no more until one gets through, after a line that tells how many were lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use host::{For, flags, wait};
use rustix::net::SendFlags;
use sync::Mutex;

/// How long a text may wait for its reader.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a write waits before it is tried again where the system promised room that it had not.
const AGAIN: Duration = Duration::from_millis(5);
/// The most bytes of one write. A pipe takes this many in one piece (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Standard output.
pub static STDOUT: LazyLock<Outlet> = LazyLock::new(|| Outlet::new(io::stdout()));
/// Standard error.
pub static STDERR: LazyLock<Outlet> = LazyLock::new(|| Outlet::new(io::stderr()));

/// A stream to which many threads may write at once. No write waits for more than a second.
pub struct Outlet {
    state: Mutex<Dropped>,
    stream: Box<dyn AsFd + Send + Sync>,
    /// None if the stream is closed, or the process had no descriptor left.
    way: Option<Outway>,
}

#[derive(Default)]
struct Dropped {
    /// The last text did not get through.
    is_full: bool,
    /// The lines that were dropped since then.
    dropped: usize,
}

/// How a text ended.
enum Put {
    Written,
    /// Nobody reads, and no more room is left; this many bytes were written.
    Full(usize),
    /// Nobody will ever read.
    Gone,
}

impl Outlet {
    /// The way is found once, at the start: the threads that serve open nothing.
    pub(crate) fn new(stream: impl AsFd + Send + Sync + 'static) -> Outlet {
        let way = Outway::to(stream.as_fd()).ok();
        Outlet { state: Mutex::new(Dropped::default()), stream: Box::new(stream), way }
    }

    /// Writes `text`, or drops what does not get through within a second.
    pub fn write(&self, text: &[u8]) {
        self.offer(text, PATIENCE);
    }

    /// Writes `text`, or drops what does not get through now.
    pub fn write_at_once(&self, text: &[u8]) {
        self.offer(text, Duration::ZERO);
    }

    /// Writes `text`, or drops what does not get through now. Takes no lock, for a thread that
    /// panics: its text may stand within one of another thread.
    pub fn write_without_lock(&self, text: &[u8]) {
        self.put(text, Instant::now());
    }

    /// Is it a terminal?
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.stream.as_fd().is_terminal()
    }

    /// The columns and lines of the terminal, or those of a usual one.
    #[must_use]
    pub fn size(&self) -> (u16, u16) {
        let size = rustix::termios::tcgetwinsize(self.stream.as_fd());
        let size = size.ok().filter(|size| size.ws_col > 0);
        size.map_or((80, 24), |size| (size.ws_col, size.ws_row))
    }

    fn offer(&self, text: &[u8], patience: Duration) {
        let mut state = self.state.lock();
        let patience = if state.is_full { Duration::ZERO } else { patience };
        let end = Instant::now() + patience;
        let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
        if state.dropped > 0 {
            let dropped = state.dropped;
            let note = format!("rampack: {dropped} lines before this one found no reader\n");
            match self.put(note.as_bytes(), end) {
                // A part of a note is better than a note for each text.
                Put::Full(0) => {
                    state.is_full = true;
                    state.dropped += lines(text);
                    return;
                }
                _ => state.dropped = 0,
            }
        }
        let put = self.put(text, end);
        state.is_full = matches!(put, Put::Full(_));
        if let Put::Full(written) = put {
            state.dropped += lines(&text[written..]);
        }
    }

    fn put(&self, text: &[u8], end: Instant) -> Put {
        let Some(way) = &self.way else { return Put::Gone };
        let mut written = 0;
        while written < text.len() {
            let rest = &text[written..];
            match way.write(&rest[..rest.len().min(PIECE)], end) {
                Ok(0) => return Put::Gone,
                Ok(some) => written += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() || !takes_some(self.stream.as_fd(), left) {
                        return Put::Full(written);
                    }
                    thread::sleep(AGAIN.min(left));
                }
                Err(_) => return Put::Gone,
            }
        }
        Put::Written
    }
}

/// Waits until a write to `stream` would not wait, for `time` at most. Returns whether it would
/// not.
fn takes_some(stream: BorrowedFd<'_>, time: Duration) -> bool {
    matches!(wait([stream], For::Writing, Some(time)), Ok([true]))
}

/// How a stream is written to without a wait. The stream is shared with other processes, so its
/// own flags are left as they are.
enum Outway {
    /// Opened a second time, for writes that do not wait.
    Opened(File),
    Socket(OwnedFd),
    /// A file: its writes wait for a disk, never for a reader.
    Plain(File),
    /// Something else, or what cannot be opened again: only where the system promises room.
    Careful(File),
}

impl Outway {
    fn to(stream: BorrowedFd<'_>) -> io::Result<Outway> {
        let copy = || stream.try_clone_to_owned();
        let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
        let Ok(kind) = fs::metadata(&path).map(|found| found.file_type()) else {
            return Ok(Outway::Careful(copy()?.into()));
        };
        if kind.is_socket() {
            return copy().map(Outway::Socket);
        }
        if kind.is_file() {
            return Ok(Outway::Plain(copy()?.into()));
        }
        let flags = flags::O_NONBLOCK | flags::O_NOCTTY;
        match OpenOptions::new().write(true).custom_flags(flags).open(&path) {
            Ok(file) => Ok(Outway::Opened(file)),
            // Also a pipe that has no reader now.
            Err(_) => Ok(Outway::Careful(copy()?.into())),
        }
    }

    fn write(&self, text: &[u8], end: Instant) -> io::Result<usize> {
        match self {
            Outway::Opened(file) | Outway::Plain(file) => (&*file).write(text),
            Outway::Socket(socket) => {
                Ok(rustix::net::send(socket, text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
            }
            Outway::Careful(file) => {
                let left = end.saturating_duration_since(Instant::now());
                match takes_some(file.as_fd(), left) {
                    true => (&*file).write(text),
                    false => Err(ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

/// Standard error for the log.
pub struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        STDERR.write(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
