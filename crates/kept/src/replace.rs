//! Another program in place of this one, in the same process.
//!
//! The process keeps its number, and the new program gets the descriptors as from a service manager
//! (sd_listen_fds(3)). For the service manager nothing happens.
//!
//! The numbers of such descriptors begin at 3, where this program has others. So the descriptors
//! are put there in a table that one thread has for itself, just before execve(2). If that fails,
//! the thread ends with its table, and all other threads go on.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::thread;

use crate::message::is_name;
use crate::store::NAME_MAX;
use crate::sys::{self, FIRST};

/// The variables that hand over descriptors.
const HANDED_OVER: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Replaces the program of this process by the one at `program`, with `arguments`, its name first.
/// It has the environment of this one, then `variables`, and is handed over `fds` with their names.
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
    let prepared = text(program.as_os_str().to_owned()).and_then(|program| {
        let arguments = arguments.into_iter().map(text).collect::<io::Result<Vec<_>>>()?;
        Ok((program, arguments, environment(variables, fds)?))
    });
    let (program, arguments, environment) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let execute = || match place(fds) {
        Ok(()) => sys::execute(&program, &arguments, &environment),
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
    fds: &[(String, OwnedFd)],
) -> io::Result<Vec<CString>> {
    if let Some((name, _)) = fds.iter().find(|(name, _)| !is_name(name, NAME_MAX)) {
        let text = format!("{name:?} cannot name a descriptor");
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let names: Vec<&str> = fds.iter().map(|(name, _)| &**name).collect();
    let values = [std::process::id().to_string(), fds.len().to_string(), names.join(":")];
    let own = HANDED_OVER.into_iter().zip(values.map(OsString::from));
    let own: Vec<_> = own.chain(variables.iter().cloned()).collect();
    let others = env::vars_os().filter(|(name, _)| own.iter().all(|(other, _)| name != other));
    let pair = |name: &OsStr, value: &OsStr| [name, value].join(OsStr::from_bytes(b"="));
    let all = others.map(|(name, value)| pair(&name, &value));
    all.chain(own.iter().map(|(name, value)| pair(OsStr::new(name), value))).map(text).collect()
}

fn text(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

/// Puts copies of `fds` where a program that gets them looks for them, in a table of descriptors
/// that only this thread has.
fn place(fds: &[(String, OwnedFd)]) -> io::Result<()> {
    sys::own_descriptors()?;
    let above = FIRST + fds.len() as RawFd;
    let copies = fds.iter().map(|(_, fd)| sys::copy_above(fd.as_fd(), above));
    let copies = copies.collect::<io::Result<Vec<_>>>()?;
    (FIRST..).zip(&copies).try_for_each(|(number, fd)| sys::place(fd.as_fd(), number))
}
