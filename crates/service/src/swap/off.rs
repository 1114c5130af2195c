//! Runs swapoff(2) in a process of its own.
//!
//! While swapoff(2) runs, the kernel treats its caller as the process that makes memory short. When
//! memory is out, it ends that process first, whatever its `oom_score_adj`. That must not be the
//! daemon: everything that is still swapped out would be lost. So the daemon starts this program
//! again, as a helper that may be ended. If it is ended, the kernel goes on swapping to the area.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use control::Errno;
use host::{errno, signal};

use crate::failure::failed;

/// The subcommand of the helper; the path follows it.
pub const COMMAND: &str = "swapoff-helper";
/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// The name of the helper in lists of processes and in the kernel log.
const NAME: &str = "rampack-swapoff";
/// The `oom_score_adj` of the helper: it is the first process to be ended when memory is out.
const FIRST: i32 = 1000;
/// The output of the helper after success; after a failure it is an error number.
const DONE: &str = "done";
/// How long another process that swaps it off may read nothing back, and the time between two
/// looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// The reason why the kernel still swaps to an area.
#[derive(Debug)]
pub enum NotOff {
    /// swapoff(2) failed.
    Refused(io::Error),
    /// The helper was killed with this signal.
    Killed(i32),
    /// The helper could not be started, or did not report its result.
    NoHelper(io::Error),
}

impl NotOff {
    /// Does another process swap it off? The kernel says this of an area that it lists.
    fn is_by_another(&self) -> bool {
        matches!(self, NotOff::Refused(error) if error.raw_os_error() == Some(errno::EINVAL))
    }

    /// The reason as an error number. A killed helper counts as `ENOMEM`: the kernel kills it when
    /// memory is out.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            NotOff::Killed(_) => Errno::ENOMEM,
            NotOff::Refused(error) | NotOff::NoHelper(error) => {
                Errno(error.raw_os_error().unwrap_or(errno::EIO))
            }
        }
    }
}

impl fmt::Display for NotOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOff::Refused(error) => match error.raw_os_error() {
                Some(errno::ENOMEM) => f.write_str("there is not enough memory to read it back"),
                Some(errno::EINTR) => f.write_str("it was interrupted"),
                Some(errno::EINVAL) => {
                    f.write_str("another process swaps it off, and does not get on")
                }
                _ => f.write_str(&failed("swapoff failed", error).message),
            },
            NotOff::Killed(signal::SIGKILL) => f.write_str(
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

/// Has the kernel read back everything that it swapped to `path`, and stop swapping to it. Waits
/// for as long as that takes. A thread that serves the reads must not call it.
///
/// # Errors
/// The reason of the failure: everything is as before then.
pub fn swap_off(path: &Path) -> Result<(), NotOff> {
    // Nothing runs between fork and exec: std uses posix_spawn(3), which shares the memory until
    // exec, so pages of the daemon are never copied.
    let mut command = Command::new(PROGRAM);
    command.arg0(NAME).arg(COMMAND).arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Ctrl-C goes to the daemon.
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

/// As [`swap_off`], for an area that the kernel lists. If another process swaps it off already,
/// such as systemd at shutdown, waits for that as long as it gets on: `used` are the bytes that are
/// still there, and none if the kernel does not list the area any more.
///
/// # Errors
/// As [`swap_off`], also if the other process has swapped it off: the kernel does not list it then.
pub fn swap_off_in_turn(path: &Path, used: impl Fn() -> Option<u64>) -> Result<(), NotOff> {
    in_turn(|| swap_off(path), used, || thread::sleep(LOOK))
}

fn in_turn(
    off: impl Fn() -> Result<(), NotOff>,
    used: impl Fn() -> Option<u64>,
    pause: impl Fn(),
) -> Result<(), NotOff> {
    let (mut last, mut since) = (used(), Instant::now());
    loop {
        let Err(why) = off() else { return Ok(()) };
        let now = used();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if !why.is_by_another() || now.is_none() || since.elapsed() > PATIENCE {
            return Err(why);
        }
        pause();
    }
}

/// The helper `rampack swapoff-helper PATH`. It prints its result on standard output.
pub(crate) fn help(path: &Path) {
    // Undoes what the helper inherited from the daemon: it may wait for I/O, and may be ended.
    let _ = fs::write("/proc/self/comm", NAME);
    let _ = host::set_io_flusher(false);
    let _ = host::set_oom_score(FIRST);
    let line = match host::swap_off(path) {
        Ok(()) => DONE.to_string(),
        Err(error) => error.raw_os_error().unwrap_or(errno::EIO).to_string(),
    };
    // The daemon checks itself whether the kernel still swaps there.
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests;
