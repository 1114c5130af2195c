//! How a process ended.

use std::fmt;

use rustix::process::WaitStatus;

/// How the last process ended, as the status of wait(2) says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ended {
    pub(crate) fn of(status: WaitStatus) -> Ended {
        match status.terminating_signal() {
            Some(signal) => Ended::Killed(signal),
            None => Ended::Exited(status.exit_status().unwrap_or_default()),
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
