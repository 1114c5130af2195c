//! How a process ended.

use std::fmt;

/// How the last process ended, as the status of wait(2) says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ended {
    pub(crate) fn of(status: i32) -> Ended {
        match libc::WIFSIGNALED(status) {
            true => Ended::Killed(libc::WTERMSIG(status)),
            false => Ended::Exited(libc::WEXITSTATUS(status)),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exited(status) => write!(f, "ended with status {status}"),
            Ended::Killed(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}
