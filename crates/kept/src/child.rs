//! The program that is kept: starts it with the descriptors of the one before.
//!
//! All memory is there before the first start: the lists of arguments and variables, and room for
//! the variables that differ from start to start.

use std::ffi::OsString;
use std::fmt::{self, Write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use host::{FIRST_PASSED, Program, Signals};
use rustix::process::Pid;

use crate::store::{NAME_MAX, inherited_address};

/// The most descriptors that are kept.
pub(crate) const MOST: usize = 256;
/// The least number of a descriptor that is kept: the new process gets copies with the numbers
/// below.
pub(crate) const LEAST: RawFd = FIRST_PASSED + MOST as RawFd;

/// A descriptor, and its name.
pub(crate) struct Kept {
    pub(crate) name: Text<NAME_MAX>,
    pub(crate) fd: OwnedFd,
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A text of at most N bytes, with its own room. What does not fit is left out.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Text<N> {
        Text { bytes: [0; N], length: 0 }
    }

    pub(crate) fn of(text: impl fmt::Display) -> Text<N> {
        let mut room = Text::new();
        let _ = write!(room, "{text}");
        room
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(self.bytes()).unwrap_or_default())
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let length = text.len().min(N - self.length);
        self.bytes[self.length..self.length + length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        if length == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The variables that hand over descriptors (sd_listen_fds(3)).
const PID: &str = "LISTEN_PID";
const FDS: &str = "LISTEN_FDS";
const NAMES: &str = "LISTEN_FDNAMES";
/// How many descriptors are kept for it.
const STORE: &str = "FDSTORE";
/// Variables that are not passed on: they are for this process, or the program gets its own.
const OWN: [&str; 7] = [PID, FDS, NAMES, "NOTIFY_SOCKET", STORE, "WATCHDOG_PID", "WATCHDOG_USEC"];

/// The names of what is kept, as a variable has them.
struct Names<'a>(&'a [Kept]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(n, kept)| {
            let colon = if n == 0 { "" } else { ":" };
            write!(f, "{colon}{}", kept.name)
        })
    }
}

/// The program that is kept.
pub(crate) struct Child {
    program: Program,
    /// The daemon's end of the socket to its keeper. It has the same number there.
    notify: OwnedFd,
}

impl Child {
    /// Prepares the program at `path` with these arguments, its name first, and this environment.
    /// It tells its service manager what happens to it through the socket `notify`.
    pub(crate) fn new(
        path: &Path,
        arguments: Vec<OsString>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        notify: OwnedFd,
    ) -> io::Result<Child> {
        let others = environment.filter(|(name, _)| OWN.iter().all(|own| name != own));
        let mut variables: Vec<OsString> =
            others.map(|(name, value)| [name, value].join("=".as_ref())).collect();
        variables.push(format!("NOTIFY_SOCKET={}", inherited_address(notify.as_raw_fd())).into());
        let rooms = [(PID, 12), (FDS, 12), (STORE, 12), (NAMES, MOST * (NAME_MAX + 1))];
        Ok(Child { program: Program::new(path, arguments, variables, &rooms)?, notify })
    }

    /// Tells it that it may have `room` descriptors kept. Calls no heap.
    pub(crate) fn allow(&mut self, room: usize) {
        // There is room for the number.
        let _ = self.program.set(STORE, room);
    }

    /// Starts it with copies of `kept`, and with the signal mask from before `signals`. Calls no
    /// heap. If the program cannot be executed, the new process ends with status 127.
    pub(crate) fn start(&mut self, kept: &[Kept], signals: &Signals) -> io::Result<Pid> {
        // There is room for all values.
        let _ = self.program.set(FDS, kept.len());
        let _ = self.program.set(NAMES, Names(kept));
        self.program.start(kept, self.notify.as_fd(), signals, PID)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_what_it_has_room_for() {
        assert_eq!(Text::<8>::of("12345678").to_string(), "12345678");
        assert_eq!(Text::<4>::of("12345678").to_string(), "1234");
    }
}
