//! What a thread that serves may ask the system for.
//!
//! Such a thread reads what clients send. [`enter`] leaves it what its work needs: it gives up its
//! capabilities ([`crate::drop_privileges`]), opens no file and makes no TCP connection any more
//! (landlock(7), where the kernel has it), and calls only what the list of its [`Role`] has
//! (seccomp(2)). What is open stays open. The threads that it starts inherit all of this.
//!
//! A refused call fails with `EPERM` and is a line of the kernel's audit log (`type=SECCOMP`, with
//! the thread's name and the number of the call). The thread goes on: a thread that is killed, with
//! requests of the kernel in its hands, would take everything that is swapped out with it.
//!
//! A process chooses once, by [`choose`], before it starts such threads. Without a choice `enter`
//! only gives up capabilities: the devices of another program may need more than ours.

use std::io;
use std::sync::OnceLock;
use std::thread;

mod calls;
mod files;
mod filter;
mod install;
mod roles;

pub use files::NoFiles;
pub use roles::Role;

use filter::Filters;

/// How much [`enter`] takes from a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sandbox {
    /// Capabilities alone.
    Off,
    /// Capabilities, files and calls; a refused call fails with `EPERM`.
    On,
    /// As `On`, for tests: a refused call prints the thread and the call to standard error, and
    /// ends the process with `SIGABRT`.
    Strict,
}

static FILTERS: OnceLock<Option<Filters>> = OnceLock::new();

/// Chooses for the process, and tries it on a thread of its own. Returns whether landlock refuses
/// to open files too. The first choice stays; a later one returns what can be had of it.
///
/// # Errors
/// `ENOSYS` or `EINVAL` when the kernel has no seccomp filters, [`io::ErrorKind::Unsupported`] when
/// filters for this architecture are not known; nothing is chosen then.
pub fn choose(sandbox: Sandbox) -> io::Result<NoFiles> {
    if sandbox == Sandbox::Off {
        FILTERS.get_or_init(|| None);
        return Ok(NoFiles::NotAsked);
    }
    if FILTERS.get().is_none() {
        let filters = Filters::new(sandbox == Sandbox::Strict)?;
        if sandbox == Sandbox::Strict {
            install::tell_and_abort()?;
        }
        let tried = thread::scope(|scope| {
            let trial = || {
                crate::heap::settle();
                give_up(&filters, Role::Clock)
            };
            thread::Builder::new()
                .name("sandbox-trial".into())
                .spawn_scoped(scope, trial)?
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the trial panicked")))
        })?;
        FILTERS.get_or_init(|| Some(filters));
        return Ok(tried);
    }
    files::known()
}

/// Leaves the calling thread what `role` needs, for good. Call it when the thread has opened all it
/// needs, and before it reads anything of a client. It uses the heap.
///
/// # Errors
/// The error of the system, if the process chose a sandbox: the thread must not serve then. Without
/// a sandbox it succeeds, also where capabilities cannot be given up.
pub fn enter(role: Role) -> io::Result<()> {
    match FILTERS.get().and_then(Option::as_ref) {
        Some(filters) => give_up(filters, role).map(drop),
        None => {
            // A program that wants to know asks on a thread of its own.
            let _ = crate::drop_privileges();
            Ok(())
        }
    }
}

fn give_up(filters: &Filters, role: Role) -> io::Result<NoFiles> {
    crate::drop_privileges()?;
    let files = files::open_none()?;
    filters.install(role)?;
    Ok(files)
}

#[cfg(test)]
mod tests;
