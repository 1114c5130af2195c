//! Swapping off in a process of its own.
//!
//! While swapoff(2) runs, the kernel takes the process that called it for the one that makes memory
//! short, and ends it first when memory is out, whatever its `oom_score_adj`. That must not be the
//! daemon: everything that is still swapped out would be lost. So the daemon starts this program
//! again, as a helper that may be ended. The kernel goes on swapping to the area then.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rampack::control::Errno;

use crate::args::SwapoffHelper;
use crate::failure::failed;

/// The command line of the helper, less the path.
pub const COMMAND: &str = "swapoff-helper";
/// This program, also when its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// What the helper is called in lists of processes and in the kernel's log.
const NAME: &str = "rampack-swapoff";
/// The helper is the first to be ended when memory is out.
const FIRST: i32 = 1000;
/// What the helper says when it is done; else it says an error number.
const DONE: &str = "done";

/// Why the kernel swaps to an area as before.
#[derive(Debug)]
pub enum NotOff {
    /// swapoff(2) failed.
    Refused(io::Error),
    /// The helper was killed with this signal.
    Killed(i32),
    /// The helper could not be started, or did not say what became of it.
    NoHelper(io::Error),
}

impl NotOff {
    /// As an error number: memory was out if the helper was killed, as far as anybody can tell.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            NotOff::Killed(_) => Errno::ENOMEM,
            NotOff::Refused(error) | NotOff::NoHelper(error) => {
                Errno(error.raw_os_error().unwrap_or(libc::EIO))
            }
        }
    }
}

impl fmt::Display for NotOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOff::Refused(error) => match error.raw_os_error() {
                Some(libc::ENOMEM) => f.write_str("there is not enough memory to read it back"),
                Some(libc::EINTR) => f.write_str("it was interrupted"),
                _ => f.write_str(&failed("swapoff failed", error).message),
            },
            NotOff::Killed(libc::SIGKILL) => f.write_str(
                "the process that read it back was killed, as the kernel does when memory is out",
            ),
            NotOff::Killed(signal) => {
                write!(f, "the process that read it back was ended by signal {signal}")
            }
            NotOff::NoHelper(error) => {
                f.write_str(&failed("the process that reads it back failed", error).message)
            }
        }
    }
}

/// Has the kernel read everything back that it swapped to `path`, and stop swapping to it. Waits
/// for as long as that takes; not for a thread that serves what is read.
///
/// # Errors
/// Why it was not done: everything is as before then.
pub fn swap_off(path: &Path) -> Result<(), NotOff> {
    // No work between fork and exec: std has posix_spawn(3) share the memory until then, so pages
    // of the daemon are never copied.
    let mut command = Command::new(PROGRAM);
    command.arg0(NAME).arg(COMMAND).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Ctrl-C is for the daemon.
    let child = command.process_group(0).spawn().map_err(NotOff::NoHelper)?;
    let output = child.wait_with_output().map_err(NotOff::NoHelper)?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim() {
        DONE => return Ok(()),
        text => {
            if let Ok(number) = text.parse() {
                return Err(NotOff::Refused(io::Error::from_raw_os_error(number)));
            }
        }
    }
    Err(match output.status.signal() {
        Some(signal) => NotOff::Killed(signal),
        None => NotOff::NoHelper(io::Error::other(format!("it ended with {}", output.status))),
    })
}

/// The helper: `rampack swapoff-helper PATH`, which says on standard output what became of it.
pub fn help(options: &SwapoffHelper) {
    // What the daemon has, and this inherited: it may wait for I/O, and be ended.
    let _ = fs::write("/proc/self/comm", NAME);
    let _ = rampack::host::set_io_flusher(false);
    let _ = rampack::host::set_oom_score(FIRST);
    let line = match rampack::host::swap_off(&options.path) {
        Ok(()) => DONE.to_string(),
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO).to_string(),
    };
    // Who started it looks itself whether the kernel still swaps there.
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests;
