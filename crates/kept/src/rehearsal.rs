//! A rehearsal: a child gets copies of the descriptors that it may be handed over one day, and says
//! what it would make of them. It tells no service manager anything.

use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{OwnedFd, RawFd};
use std::process::Command;
use std::thread;

use host::FIRST_PASSED;

/// Names the copies: numbers of descriptors and their names by turns, joined by colons.
const GIVEN: &str = "RAMPACK_REHEARSAL";
/// Variables that are for the service of this process alone.
const OF_SERVICE: [&str; 4] = ["NOTIFY_SOCKET", "LISTEN_PID", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// Is this process such a child?
#[must_use]
pub fn is_rehearsal() -> bool {
    env::var_os(GIVEN).is_some()
}

/// Has `run` start the program of `command` with copies of `fds`, which [`crate::handed_over`]
/// returns there. Other children of this process do not get them: `run` is called on a thread that
/// has a table of descriptors for itself, a copy of this one, until it returns.
///
/// # Errors
/// Those of `run`; the error of the system.
pub fn rehearse<T: Send>(
    command: &mut Command,
    fds: &[(String, OwnedFd)],
    run: impl FnOnce(&mut Command) -> io::Result<T> + Send,
) -> io::Result<T> {
    let run = || {
        host::own_descriptors()?;
        let give = |(name, fd): &(String, OwnedFd)| {
            Ok(format!("{}:{name}", host::copy_for_programs(fd, FIRST_PASSED)?))
        };
        let given: Vec<String> = fds.iter().map(give).collect::<io::Result<_>>()?;
        OF_SERVICE.iter().for_each(|name| _ = command.env_remove(name));
        run(command.env(GIVEN, given.join(":")))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rehearse".into()).spawn_scoped(scope, run)?;
        thread.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()))
    })
}

/// The copies that this process was given, if it is such a child.
///
/// # Errors
/// An error that shows the variable when it does not name open descriptors.
pub(crate) fn given() -> Option<io::Result<Vec<(String, OwnedFd)>>> {
    let text = env::var_os(GIVEN)?;
    let take = |(number, name): (RawFd, &str)| Ok((name.to_owned(), host::inherited(number)?));
    let all = parse(&text).map(|all| all.into_iter().map(take).collect::<io::Result<Vec<_>>>());
    let wrong = |error: &dyn std::fmt::Display| {
        let text = format!("{GIVEN} is {text:?}, which names no open descriptors: {error}");
        io::Error::new(ErrorKind::InvalidInput, text)
    };
    Some(match all {
        Some(Ok(all)) => Ok(all),
        Some(Err(error)) => Err(wrong(&error)),
        None => Err(wrong(&"numbers and names by turns are expected")),
    })
}

fn parse(text: &OsStr) -> Option<Vec<(RawFd, &str)>> {
    let text = text.to_str()?;
    let words: Vec<&str> = text.split(':').filter(|_| !text.is_empty()).collect();
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[number, name]| Some((number.parse().ok()?, *name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_come_by_turns() {
        let parsed = |text: &'static str| parse(OsStr::new(text));
        assert_eq!(parsed("7:a:9:b"), Some(vec![(7, "a"), (9, "b")]));
        assert_eq!(parsed(""), Some(Vec::new()));
        for wrong in ["7", "a:7", "7:a:9", "7:a:"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
