//! `rampack keep`: starts a daemon, keeps its descriptors, and starts it again when it dies.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::exit;

use clap::Args;
use clap::error::ErrorKind;
use control::{ControlError, Errno};
use kept::{Backoff, Ended, Keeper};

use crate::args::{Cli, Command, Keep, Swap, SwapAction};
use crate::terminal;
use service::failure::failed;
use service::swap::protections;

/// `rampack keep`. Ends the process with the exit code of the daemon; for a daemon that a signal
/// killed it is 128 and the number of the signal.
///
/// # Errors
/// `EINVAL` where systemd keeps the daemon; the error of the system if there can be no keeper.
pub fn run(root: Option<&Path>, verbose: u8, keep: &Keep) -> Result<(), ControlError> {
    if is_of_swap(&keep.command) {
        host::mark_as_storage_daemon();
    }
    let handed_over = kept::handed_over()
        .map_err(|error| failed("cannot take over the descriptors of LISTEN_FDS", &error))?;
    if env::var_os("WATCHDOG_USEC").is_some() {
        return Err(ControlError::invalid(
            "WATCHDOG_USEC is set: a service with WatchdogSec= needs no keeper, because systemd \
             starts its daemon again and keeps descriptors for it (FileDescriptorStoreMax=); run \
             the daemon itself",
        ));
    }
    let program = env::current_exe().map_err(|error| failed("cannot find this program", &error))?;
    let arguments = daemon(root, verbose, &keep.command)?;
    // What outlives the daemon is files that this process has, too.
    host::allow_descriptors(Keeper::DESCRIPTORS).map_err(|limit| {
        let needs = format!("a keeper needs {} descriptors, and {limit}", Keeper::DESCRIPTORS);
        ControlError::new(Errno(host::errno::EMFILE), needs)
    })?;
    let doing = |error| failed("cannot keep a daemon", &error);
    let above = env::var_os("NOTIFY_SOCKET");
    let mut keeper = Keeper::new(&program, arguments, Backoff::default(), above).map_err(doing)?;
    for (name, fd) in handed_over {
        keeper.keep(&name, fd).map_err(doing)?;
    }
    be_safe();
    match keeper.run().map_err(doing)? {
        Ended::Exited(status) => exit(status),
        Ended::Killed(signal) => exit(128 + signal),
    }
}

/// Is this the command of a daemon of swap devices?
fn is_of_swap(command: &[OsString]) -> bool {
    command.first().is_some_and(|word| word == "swap")
}

/// The words of the daemon's command line.
fn daemon(
    root: Option<&Path>,
    verbose: u8,
    command: &[OsString],
) -> Result<Vec<OsString>, ControlError> {
    // As `host::mark_as_storage_daemon` does it.
    let name = if is_of_swap(command) { "@rampack" } else { "rampack" };
    let mut words = vec![OsString::from(name)];
    if let Some(root) = root {
        words.extend(["--root".into(), root.into()]);
    }
    words.extend((0..verbose).map(|_| OsString::from("-v")));
    words.extend(command.iter().cloned());
    // A wrong command line is told now, and as for the command itself.
    let told = |error| exit(terminal::tell(&error).into());
    match Cli::read(words.iter().cloned()).unwrap_or_else(told).command {
        Command::Serve(_) | Command::Up(_) => Ok(words),
        Command::Swap(Swap { action: SwapAction::On(_) }) => Ok(words),
        _ => {
            let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
            let message =
                format!("{} is no daemon to keep; serve, up and swap on are", words.join(" "));
            let mut keep = Keep::augment_args(clap::Command::new("rampack keep"));
            exit(terminal::tell(&keep.error(ErrorKind::ValueValidation, message)).into())
        }
    }
}

/// Keeps this process in memory, and others out of what it keeps. While the daemon of a swap device
/// is dead, nothing is read back from that device: this process and the next daemon, which inherits
/// it, must not wait for I/O to get memory, and must not be ended because memory is out.
fn be_safe() {
    protections::begin();
    if let Err(error) = host::set_oom_score(protections::NEVER) {
        tracing::debug!("the keeper may be ended when memory is out: {error}");
    }
    if let Err(error) = host::no_core_dumps() {
        tracing::warn!("others may look into what is kept: {error}");
    }
    let locked = host::lock_memory().and_then(|()| host::make_resident());
    if let Err(error) = locked {
        tracing::warn!(
            "the keeper's memory is not locked, so it may have to wait for memory before it starts \
             the daemon again: {error}"
        );
    }
}
