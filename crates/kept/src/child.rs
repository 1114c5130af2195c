//! The program that is kept: starts it with the descriptors of the one before.
//!
//! All memory is there before the first start: the lists of arguments and variables, and room for
//! the variables that differ from start to start.
//!
//! # Why unsafe
//! execve(2) takes lists of pointers. fork(2) and execve(2) are called directly because the
//! standard library calls the heap to start a program.

use std::ffi::{CString, OsString, c_char};
use std::fmt::{self, Write};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

use crate::store::NAME_MAX;
use crate::sys::{FIRST, Signals, checked};

/// The most descriptors that are kept.
pub(crate) const MOST: usize = 256;
/// The least number of a descriptor that is kept: the new process gets copies with the numbers
/// below.
pub(crate) const LEAST: RawFd = FIRST + MOST as RawFd;

/// A descriptor, and its name.
pub(crate) struct Kept {
    pub(crate) name: Text<NAME_MAX>,
    pub(crate) fd: OwnedFd,
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

/// Room for LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, each with its closing zero.
struct Variables {
    pid: [u8; 32],
    fds: Text<32>,
    names: Text<{ 32 + MOST * (NAME_MAX + 1) }>,
}

const PID: &[u8] = b"LISTEN_PID=";
/// Variables that are not passed on: they are for this process, or the program gets its own.
const OWN: [&str; 7] = [
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "FDSTORE",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// A program, ready to be started.
pub(crate) struct Program {
    program: CString,
    /// What the lists of pointers point to.
    _strings: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    variables: Box<Variables>,
}

// SAFETY: the pointers are to memory that it owns.
unsafe impl Send for Program {}

impl Program {
    /// Prepares the program at `path` with these arguments, its name first, and this environment.
    /// It tells the service manager at the abstract socket `notify` what happens to it.
    pub(crate) fn new(
        path: &Path,
        arguments: Vec<OsString>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        notify: &str,
    ) -> io::Result<Program> {
        let program = CString::new(path.as_os_str().as_bytes())?;
        let mut strings = Vec::new();
        let mut list = |texts: Vec<OsString>| {
            let mut pointers = Vec::new();
            for text in texts {
                let text = CString::new(text.into_vec())?;
                pointers.push(text.as_ptr());
                strings.push(text);
            }
            io::Result::Ok(pointers)
        };
        let mut arguments = list(arguments)?;
        arguments.push(ptr::null());
        let others = environment.filter(|(name, _)| OWN.iter().all(|own| name != own));
        let mut texts: Vec<OsString> =
            others.map(|(name, value)| [name, value].join("=".as_ref())).collect();
        texts.push(format!("NOTIFY_SOCKET=@{notify}").into());
        texts.push(format!("FDSTORE={MOST}").into());
        let mut environment = list(texts)?;
        let mut variables =
            Box::new(Variables { pid: [0; 32], fds: Text::new(), names: Text::new() });
        variables.pid[..PID.len()].copy_from_slice(PID);
        environment.push(variables.pid.as_ptr().cast());
        environment.push(variables.fds.bytes.as_ptr().cast());
        environment.push(variables.names.bytes.as_ptr().cast());
        environment.push(ptr::null());
        Ok(Program { program, _strings: strings, arguments, environment, variables })
    }

    /// Starts it with copies of `kept`, and with the signal mask from before `signals`. Calls no
    /// heap. If the program cannot be executed, the new process ends with status 127.
    pub(crate) fn start(&mut self, kept: &[Kept], signals: &Signals) -> io::Result<libc::pid_t> {
        let variables = &mut *self.variables;
        variables.fds = Text::of(format_args!("LISTEN_FDS={}\0", kept.len()));
        variables.names = Text::of("LISTEN_FDNAMES=");
        for (n, kept) in kept.iter().enumerate() {
            let colon = if n == 0 { "" } else { ":" };
            let _ = write!(variables.names, "{colon}{}", kept.name);
        }
        let _ = variables.names.write_str("\0");
        // SAFETY: the copy of this process calls only functions that are allowed after a fork in a
        // process with threads (signal-safety(7)), with numbers and with memory of `self`. The
        // lists end with a null pointer, and their strings with a zero.
        unsafe {
            let child = checked(libc::fork())?;
            if child != 0 {
                return Ok(child);
            }
            write_number(libc::getpid(), &mut variables.pid[PID.len()..]);
            for (place, kept) in (FIRST..).zip(kept) {
                if libc::dup2(kept.fd.as_raw_fd(), place) < 0 {
                    libc::_exit(127);
                }
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const signals.before, ptr::null_mut());
            let (arguments, environment) = (self.arguments.as_ptr(), self.environment.as_ptr());
            libc::execve(self.program.as_ptr(), arguments, environment);
            let text = b"rampack: the program to keep cannot be started\n";
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(127)
        }
    }
}

/// Writes a number and a closing zero.
fn write_number(number: libc::pid_t, to: &mut [u8]) {
    let mut digits = [0u8; 12];
    let (mut at, mut left) = (digits.len() - 1, number.unsigned_abs());
    while left > 0 || at + 1 == digits.len() {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    to[..digits.len() - at].copy_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_without_the_heap() {
        for number in [0, 7, 10, 4_194_304, i32::MAX] {
            let mut text = [0xff; 21];
            write_number(number, &mut text);
            let end = text.iter().position(|byte| *byte == 0).unwrap();
            assert_eq!(std::str::from_utf8(&text[..end]).unwrap(), number.to_string());
        }
    }

    #[test]
    fn a_text_takes_what_it_has_room_for() {
        assert_eq!(Text::<8>::of("12345678").to_string(), "12345678");
        assert_eq!(Text::<4>::of("12345678").to_string(), "1234");
    }
}
