//! The client of the control socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rampack::control::{ControlError, Errno};
use serde::de::DeserializeOwned;

use crate::failure::failed;
use crate::protocol::{Request, parse_reply, request_line};
use crate::root::Root;
use crate::server::exchange;

/// How long a daemon may take to answer. An unmount may have to write much first.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks the daemon at `root` and returns its answer, of the type that belongs to the request.
///
/// # Errors
/// `ENOENT` when no daemon runs there (the message says how to start one), the daemon's own error,
/// or the error of the system call.
pub fn call<T: DeserializeOwned>(root: &Root, request: &Request) -> Result<T, ControlError> {
    ask(root, request, Some(PATIENCE))
}

/// As [`call`], but without a time limit: for requests such as reading back swapped-out pages.
///
/// # Errors
/// As [`call`].
pub fn call_patiently<T: DeserializeOwned>(
    root: &Root,
    request: &Request,
) -> Result<T, ControlError> {
    ask(root, request, None)
}

fn ask<T: DeserializeOwned>(
    root: &Root,
    request: &Request,
    backoff: Option<Duration>,
) -> Result<T, ControlError> {
    let path = root.control_socket();
    let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
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
        _ => failed(format!("cannot reach {}", path.display()), &error),
    })?;
    let what = || format!("no answer from {}", path.display());
    stream.set_read_timeout(backoff).map_err(|e| failed(what(), &e))?;
    let line = exchange(&stream, &request_line(request)).map_err(|e| failed(what(), &e))?;
    parse_reply(&line)
}
