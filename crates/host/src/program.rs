//! Copies of this process, and programs that are started without the heap.
//!
//! # Why unsafe
//! fork(2) makes a copy with one thread, which may call only what a handler of a signal may call
//! (signal-safety(7)). execve(2) takes lists of pointers. The standard library calls the heap to
//! start a program.

use std::ffi::{CString, OsString};
use std::fmt::{self, Write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

use rustix::process::Pid;

use crate::descriptors::FIRST_PASSED;
use crate::signals::Signals;

/// Strings as execve(2) takes them.
struct List {
    /// Each ends with a zero.
    texts: Vec<Box<[u8]>>,
    /// To the texts; the last one is null.
    pointers: Vec<*const libc::c_char>,
}

// SAFETY: the pointers are to memory that it owns.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    fn new(texts: Vec<OsString>) -> io::Result<List> {
        let mut list = List { texts: Vec::new(), pointers: vec![ptr::null()] };
        for text in texts {
            list.push(CString::new(text.into_vec())?.into_bytes_with_nul().into());
        }
        Ok(list)
    }

    /// Adds a text that ends with a zero.
    fn push(&mut self, text: Box<[u8]>) {
        debug_assert_eq!(text.last(), Some(&0));
        self.pointers.insert(self.texts.len(), text.as_ptr().cast());
        self.texts.push(text);
    }
}

/// A program with its arguments and its environment, ready to be started.
pub struct Program {
    path: CString,
    arguments: List,
    environment: List,
    /// The names of variables that differ from start to start, which are the last ones.
    rooms: Vec<&'static str>,
}

/// Writes what there is room for to a part of the text of a variable.
struct Room<'a>(&'a mut [u8]);

impl Write for Room<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (here, rest) =
            std::mem::take(&mut self.0).split_at_mut_checked(text.len()).ok_or(fmt::Error)?;
        here.copy_from_slice(text.as_bytes());
        self.0 = rest;
        Ok(())
    }
}

impl Program {
    /// The program at `path` with these arguments, its name first, and the variables `NAME=VALUE`.
    /// Each variable of `rooms` has room for as many bytes, and gets its value later.
    ///
    /// # Errors
    /// `InvalidInput` for a text with a zero in it.
    pub fn new(
        path: &Path,
        arguments: Vec<OsString>,
        variables: Vec<OsString>,
        rooms: &[(&'static str, usize)],
    ) -> io::Result<Program> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let (arguments, mut environment) = (List::new(arguments)?, List::new(variables)?);
        for (name, bytes) in rooms {
            let mut text = format!("{name}=").into_bytes();
            text.resize(text.len() + bytes + 1, 0);
            environment.push(text.into());
        }
        let rooms = rooms.iter().map(|(name, _)| *name).collect();
        Ok(Program { path, arguments, environment, rooms })
    }

    /// Sets a variable that differs from start to start. Does not call the heap.
    ///
    /// # Errors
    /// An error if there is no room for the value.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) -> fmt::Result {
        let at = self.rooms.iter().position(|room| *room == name).ok_or(fmt::Error)?;
        let at = self.environment.texts.len() - self.rooms.len() + at;
        let text = &mut self.environment.texts[at][name.len() + 1..];
        text.fill(0);
        // The last byte stays zero.
        let (_, room) = text.split_last_mut().ok_or(fmt::Error)?;
        write!(Room(room), "{value}")
    }

    /// Replaces the program of this process. Returns only if that fails. Does not call the heap.
    #[must_use]
    pub fn execute(&self) -> io::Error {
        let (arguments, environment) = (&self.arguments.pointers, &self.environment.pointers);
        // SAFETY: the lists end with a null pointer, and their strings with a zero; all live
        // through the call.
        unsafe { libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }

    /// Starts it in a new process, with copies of `fds` from descriptor [`FIRST_PASSED`] on, with
    /// `shared` under the number that it has here, and with the mask from before `signals`. The
    /// variable `own`, if it is one that differs, gets the number of the process. Does not call the
    /// heap. If the program cannot be executed, the new process ends with status 127.
    ///
    /// # Errors
    /// The error of fork(2).
    pub fn start(
        &mut self,
        fds: &[impl AsFd],
        shared: BorrowedFd<'_>,
        signals: &Signals,
        own: &str,
    ) -> io::Result<Pid> {
        // SAFETY: the copy of this process calls only functions that are allowed after a fork in a
        // process with threads, with numbers and with memory of `self`.
        unsafe {
            let child = libc::fork();
            if child != 0 {
                return forked(child);
            }
            let _ = self.set(own, libc::getpid());
            let (first, shared) = (FIRST_PASSED, shared.as_raw_fd());
            let copy = |(place, fd): (_, &_)| libc::dup2(AsFd::as_fd(fd).as_raw_fd(), place) >= 0;
            if (first..).zip(fds).all(copy) && libc::fcntl(shared, libc::F_SETFD, 0) >= 0 {
                signals.bring_back_mask();
                // Its error has a number only.
                let _ = self.execute();
                let text = b"rampack: the program to keep cannot be started\n";
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            }
            libc::_exit(127)
        }
    }
}

/// What fork(2) returned in the original, with the error of the system if it failed.
fn forked(child: libc::pid_t) -> io::Result<Pid> {
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    Pid::from_raw(child).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Runs `work` in a copy of this process and waits for it. Returns what `work` returned, or -1 if a
/// signal ended the copy. The process must have one thread: the copy has only the calling thread.
///
/// # Errors
/// The error of `fork(2)`.
pub fn in_a_copy(work: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: the caller has one thread, so the copy is whole; it ends here and runs nothing that
    // the original registered for its end.
    let child = match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends this process with a number.
            unsafe { libc::_exit(i32::from(code.unwrap_or(101))) }
        }
        child => forked(child)?,
    };
    Ok(ended(child)?.exit_status().unwrap_or(-1))
}

/// Waits for the end of a child.
///
/// # Errors
/// The error of waitpid(2).
pub fn ended(child: Pid) -> io::Result<rustix::process::WaitStatus> {
    let wait = || rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    let ended = rustix::io::retry_on_intr(wait)?;
    ended.map(|(_, status)| status).ok_or_else(|| io::ErrorKind::Other.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_that_fails_is_an_error() {
        // SAFETY: closes no descriptor; sets the number of the error.
        unsafe { libc::close(-1) };
        assert_eq!(forked(-1).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(forked(7).unwrap().as_raw_pid(), 7);
    }

    #[test]
    fn a_variable_takes_what_it_has_room_for() {
        let rooms = [("A", 2), ("BC", 4)];
        let mut program = Program::new(Path::new("/"), vec![], vec!["X=1".into()], &rooms).unwrap();
        let text = |program: &Program, at: usize| {
            // SAFETY: the texts of the list end with a zero and live as long as the program.
            unsafe { std::ffi::CStr::from_ptr(program.environment.pointers[at]) }.to_owned()
        };
        assert!(program.set("BC", 4_294).is_ok() && program.set("BC", 12_345).is_err());
        assert!(program.set("A", 7).is_ok() && program.set("X", 7).is_err());
        assert_eq!(program.environment.pointers.len(), 4);
        assert_eq!([1, 2].map(|at| text(&program, at)), [c"A=7".to_owned(), c"BC=".to_owned()]);
        assert!(program.set("BC", 123).is_ok());
        assert_eq!(text(&program, 2).as_c_str(), c"BC=123");
    }
}
