//! What a process has from the one that started it, for a program that it starts in turn.
//!
//! # Why unsafe
//! Calls between fork and exec.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

/// The umask and the limits that a process was started with, which a daemon changes for itself.
#[derive(Clone, Copy)]
pub struct Started {
    umask: Mode,
    limits: [(Resource, Rlimit); 2],
}

impl Started {
    /// Those of this process now. No other thread may make files meanwhile.
    #[must_use]
    pub fn now() -> Started {
        let was = umask(Mode::empty());
        umask(was);
        let limits = [Resource::Core, Resource::Nofile].map(|it| (it, getrlimit(it)));
        Started { umask: was, limits }
    }

    /// Has `command` start with them.
    pub fn give_to(self, command: &mut Command) {
        let give = move || {
            umask(self.umask);
            let mut limits = self.limits.into_iter();
            limits.try_for_each(|(which, limit)| Ok(setrlimit(which, limit)?))
        };
        // SAFETY: nothing but system calls between fork and exec.
        unsafe { command.pre_exec(give) };
    }
}
