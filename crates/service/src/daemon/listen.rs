//! The sockets of NBD in the root and on TCP.

use std::os::fd::AsFd;
use std::path::Path;

use control::{ControlError, Errno};
use host::errno;
use nbd::{ListenError, Listener, Server};

use crate::failure::failed;
use crate::root::RootLock;
use crate::state::{Connection, State};
use crate::takeover;
use crate::transport::NbdOptions;

/// Listens for NBD in the root, and on TCP if asked to; adds to `addresses` where it does. Sockets
/// of the daemon before are served on.
pub(super) fn listen(
    server: &Server,
    claim: &RootLock,
    nbd: &NbdOptions,
    state: Option<&State>,
    addresses: &mut Vec<String>,
) -> Result<(), ControlError> {
    let path = claim.root().nbd_socket();
    let keep = |connection, listener: &Listener| {
        state.map_or(Ok(()), |state| state.keep(connection, listener.as_fd()))
    };
    let serve = |listener: Listener| {
        server.listen(listener).map_err(|e| failed("cannot start the NBD server", &e))
    };
    let there = state.and_then(|state| takeover::nbd_socket(state, &path, nbd));
    serve(match there {
        Some(listener) => listener,
        None => {
            claim.made().socket(&path)?;
            let new = Listener::unix_for(&path, &nbd.allow_uid);
            let listener = new.map_err(|e| listen_error(&e))?;
            keep(Connection::Nbd, &listener)?;
            listener
        }
    })?;
    addresses.push(format!("nbd+unix:///?socket={}", percent_encoded(&path)));
    if let Some(address) = nbd.tcp {
        let there = state.and_then(takeover::nbd_tcp_socket);
        let listener = match there {
            Some(listener) => listener,
            None => {
                let listener = Listener::tcp(address).map_err(|e| listen_error(&e))?;
                keep(Connection::NbdTcp, &listener)?;
                listener
            }
        };
        let bound = listener.tcp_address().unwrap_or(address);
        serve(listener)?;
        let scheme = if nbd.tls_certificates.is_some() { "nbds" } else { "nbd" };
        addresses.push(format!("{scheme}://{bound}"));
    }
    Ok(())
}

fn listen_error(error: &ListenError) -> ControlError {
    let errno = match error {
        ListenError::InUse(_) => errno::EADDRINUSE,
        ListenError::NotASocket(_) => errno::EEXIST,
        ListenError::TooLong(_) => errno::ENAMETOOLONG,
        ListenError::Locked(_) => errno::EBUSY,
        ListenError::Path(path, error) => {
            return failed(format!("cannot listen at {}", path.display()), error);
        }
        ListenError::Address(address, error) => {
            return failed(format!("cannot listen at {address}"), error);
        }
    };
    ControlError::new(Errno(errno), error.to_string())
}

/// Encodes a path as part of a URI.
pub(super) fn percent_encoded(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            other => {
                let _ = write!(text, "%{other:02X}");
            }
        }
    }
    text
}
