//! Another program in place of this one, in the same process.
//!
//! The process keeps its number, and the new program gets the descriptors as from a service manager
//! (sd_listen_fds(3)). For the service manager nothing happens.
//!
//! The numbers of such descriptors begin at 3, where this program has others. So the descriptors
//! are put there in a table that one thread has for itself, just before execve(2). If that fails,
//! the thread ends with its table, and all other threads go on.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use host::{FIRST_PASSED, Program};
use rustix::io::fcntl_dupfd_cloexec;

use crate::message::is_name;
use crate::store::{NAME_MAX, inherited_address, inherited_number};

/// The variables that hand over descriptors.
const HANDED_OVER: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
const NOTIFY: &str = "NOTIFY_SOCKET";

/// Replaces the program of this process by the one at `program`, with `arguments`, its name first.
/// It has the environment of this one, then `variables`, and is handed over `fds` with their names,
/// and the socket of a [`crate::Keeper`], if there is one.
/// Other descriptors are closed, but for the standard streams. All other threads end at once,
/// wherever they are.
///
/// The calling thread must have the rights of the process, for its new program inherits them: not
/// a thread that gave them up.
///
/// Returns only if this fails; the process is as it was then.
///
/// # Errors
/// `InvalidInput` for a name that cannot be or a text with a zero in it; the error of the system.
pub fn replace(
    program: &Path,
    arguments: Vec<OsString>,
    variables: &[(&str, OsString)],
    fds: &[(String, OwnedFd)],
) -> io::Error {
    let socket = env::var_os(NOTIFY).as_deref().and_then(inherited_number);
    let socket = match socket.map(host::copy_of_inherited).transpose() {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    let all: Vec<BorrowedFd<'_>> =
        fds.iter().map(|(_, fd)| fd.as_fd()).chain(socket.iter().map(AsFd::as_fd)).collect();
    // It is the last.
    let notify = socket.is_some().then(|| FIRST_PASSED + fds.len() as RawFd);
    let prepared = environment(variables, notify, fds)
        .and_then(|environment| Program::new(program, arguments, environment, &[]));
    let program = match prepared {
        Ok(program) => program,
        Err(error) => return error,
    };
    let execute = || match place(&all) {
        Ok(()) => program.execute(),
        Err(error) => error,
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("replace".into()).spawn_scoped(scope, execute);
        let joined = thread.map(|thread| thread.join());
        match joined {
            Ok(Ok(error)) | Err(error) => error,
            Ok(Err(_)) => ErrorKind::Other.into(),
        }
    })
}

fn environment(
    variables: &[(&str, OsString)],
    notify: Option<RawFd>,
    fds: &[(String, OwnedFd)],
) -> io::Result<Vec<OsString>> {
    if let Some((name, _)) = fds.iter().find(|(name, _)| !is_name(name, NAME_MAX)) {
        let text = format!("{name:?} cannot name a descriptor");
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let names: Vec<&str> = fds.iter().map(|(name, _)| &**name).collect();
    let values = [std::process::id().to_string(), fds.len().to_string(), names.join(":")];
    let own = HANDED_OVER.into_iter().zip(values.map(OsString::from));
    let notify = notify.map(|number| (NOTIFY, inherited_address(number).into()));
    let own: Vec<_> = own.chain(notify).chain(variables.iter().cloned()).collect();
    let others = env::vars_os().filter(|(name, _)| own.iter().all(|(other, _)| name != other));
    let pair = |name: &OsStr, value: &OsStr| [name, value].join(OsStr::from_bytes(b"="));
    let all = others.map(|(name, value)| pair(&name, &value));
    Ok(all.chain(own.iter().map(|(name, value)| pair(OsStr::new(name), value))).collect())
}

/// Puts copies of `fds` where a program that gets them looks for them, in a table of descriptors
/// that only this thread has.
fn place(fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    host::own_descriptors()?;
    let above = FIRST_PASSED + fds.len() as RawFd;
    let copies = fds.iter().map(|fd| Ok(fcntl_dupfd_cloexec(fd, above)?));
    let copies = copies.collect::<io::Result<Vec<_>>>()?;
    (FIRST_PASSED..).zip(&copies).try_for_each(|(number, fd)| host::place(fd.as_fd(), number))
}
