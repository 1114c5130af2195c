//! The client of the control socket.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rampack::control::{ControlError, Errno};
use serde::de::DeserializeOwned;

use crate::failure::failed;
use crate::protocol::{DaemonReport, Request, Status, parse_reply, request_line};
use crate::root::Root;
use crate::server::exchange;
use crate::sys;

/// How long a daemon may take to answer. An unmount may have to write much first.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a daemon may take to report: it waits for nothing then.
const REPORTING: Duration = Duration::from_secs(10);

/// The report of the daemon at `root`.
///
/// # Errors
/// As [`call`]; `ETIMEDOUT` after ten seconds; `EBUSY` at once when the daemon is stopped (by
/// `SIGSTOP` or a debugger).
pub fn report(root: &Root) -> Result<DaemonReport, ControlError> {
    let stream = connect(root)?;
    // The socket knows the process. A file of the daemon would not do: it may be in memory that
    // was swapped out to a device that does not answer, of which this report tells.
    if let Some(pid) = sys::listener_of(&stream).filter(|pid| is_stopped(*pid)) {
        let message = format!(
            "the daemon in {} is stopped (process {pid}, state T); let it go on with `kill -CONT \
             {pid}`",
            root.path().display()
        );
        return Err(ControlError::new(Errno::EBUSY, message));
    }
    ask(root, stream, &Request::Status(Status {}), Some(REPORTING))
}

/// Is the process stopped (proc_pid_stat(5))?
pub(crate) fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().next());
    matches!(state, Some("T" | "t"))
}

/// Asks the daemon at `root` and returns its answer, of the type that belongs to the request.
///
/// # Errors
/// `ENOENT` when no daemon runs there (the message says how to start one), the daemon's own error,
/// or the error of the system call.
pub fn call<T: DeserializeOwned>(root: &Root, request: &Request) -> Result<T, ControlError> {
    ask(root, connect(root)?, request, Some(PATIENCE))
}

/// As [`call`], but without a time limit: for requests such as reading back swapped-out pages.
///
/// # Errors
/// As [`call`].
pub fn call_patiently<T: DeserializeOwned>(
    root: &Root,
    request: &Request,
) -> Result<T, ControlError> {
    ask(root, connect(root)?, request, None)
}

fn connect(root: &Root) -> Result<UnixStream, ControlError> {
    let path = root.control_socket();
    sys::connect_at_once(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let message = format!(
                "no rampack daemon runs in {}; start one with `rampack up`, `rampack serve` or \
                 `rampack swap on`, or name another with --root DIR",
                root.path().display()
            );
            ControlError::new(Errno::ENOENT, message)
        }
        io::ErrorKind::PermissionDenied => {
            let message = format!(
                "no permission for {}; the daemon answers only the user who started it",
                path.display()
            );
            ControlError::new(Errno::EACCES, message)
        }
        io::ErrorKind::WouldBlock => {
            let message = format!(
                "the daemon at {} takes no more requests: too many wait for its answer",
                path.display()
            );
            ControlError::new(Errno::EBUSY, message)
        }
        _ => failed(format!("cannot reach {}", path.display()), &error),
    })
}

fn ask<T: DeserializeOwned>(
    root: &Root,
    stream: UnixStream,
    request: &Request,
    backoff: Option<Duration>,
) -> Result<T, ControlError> {
    let path = root.control_socket();
    let what = || format!("no answer from {}", path.display());
    stream.set_read_timeout(backoff).map_err(|e| failed(what(), &e))?;
    let line = exchange(&stream, &request_line(request)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let seconds = backoff.map_or(0, |backoff| backoff.as_secs());
            let message = format!("{} within {seconds} seconds", what());
            ControlError::new(Errno(libc::ETIMEDOUT), message)
        }
        _ => failed(what(), &error),
    })?;
    parse_reply(&line)
}
