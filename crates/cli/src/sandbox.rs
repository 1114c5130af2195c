//! Chooses what the threads that serve may still ask the system for.

use std::thread;

use control::ControlError;
use host::{self, NoFiles, Sandbox};

use crate::args::SandboxOptions;
use service::failure::failed;

/// Chooses for this process. Call it before the first thread that serves is started.
///
/// # Errors
/// The error of the system for a kernel without filters of system calls; the message names the
/// option that does without.
pub fn choose(options: SandboxOptions) -> Result<(), ControlError> {
    let sandbox = Sandbox::from(options.sandbox);
    let chosen = host::sandbox::choose(sandbox).map_err(|error| {
        let error = failed("threads that serve cannot be confined by a seccomp filter", &error);
        let without = "--sandbox off serves without one: a hole in such a thread then opens what \
                       this user may open";
        ControlError::new(error.errno, format!("{}; {without}", error.message))
    })?;
    match chosen {
        NoFiles::Fully => tracing::info!("threads that serve: seccomp, landlock"),
        NoFiles::Partly => tracing::info!("threads that serve: seccomp, landlock in part"),
        NoFiles::NoLandlock => tracing::info!("threads that serve: seccomp; there is no landlock"),
        NoFiles::NotAsked => tell_of_privileges(),
    }
    Ok(())
}

/// Without a sandbox threads give up their privileges and cannot report it if they could not.
fn tell_of_privileges() {
    let thread = thread::Builder::new().name("sandbox-trial".into()).spawn(host::drop_privileges);
    if let Err(error) = thread.and_then(|thread| thread.join().unwrap_or(Ok(()))) {
        tracing::warn!("threads that serve clients keep the privileges of the daemon: {error}");
    }
}
