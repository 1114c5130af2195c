//! Why a connection is refused, and what the log says of it.

use core::fmt;
use std::collections::HashMap;
use std::io;
use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::peer::Peer;

/// The log names each reason at most once in this time.
const PAUSE: Duration = Duration::from_secs(60);

/// Why a connection is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The server is shutting down.
    Stopping,
    /// This user may not connect.
    Stranger(u32),
    /// All places are taken that this peer could have.
    Full(Peer, usize),
    /// The peer has this many connections: its share.
    Share(Peer, usize),
    /// The system has no thread for it.
    NoThread(io::Error),
    /// The system has no descriptor or memory for it. It waits.
    NotTaken(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Stopping => f.write_str("the server is shutting down"),
            Refusal::Stranger(user) => write!(f, "user {user} may not connect"),
            Refusal::Full(peer, all) => {
                write!(f, "{peer}: none of the server's {all} connections is free for it")
            }
            Refusal::Share(peer, count) => {
                write!(f, "{peer}: it has {count} connections, which is its share")
            }
            Refusal::NoThread(error) => write!(f, "no thread can be started: {error}"),
            Refusal::NotTaken(error) => write!(f, "it has to wait: {error}"),
        }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::NoThread(error) | Refusal::NotTaken(error) => error,
            other => io::Error::new(io::ErrorKind::ConnectionRefused, other.to_string()),
        }
    }
}

/// What the log was told of each reason.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<Discriminant<Refusal>, Said>>);

#[derive(Clone, Copy, Default)]
struct Said {
    last: Option<Instant>,
    /// Refusals since then.
    since: u64,
}

impl Refusals {
    /// Logs a refusal, unless the log has this reason from less than a minute ago.
    pub(crate) fn log(&self, refusal: &Refusal) {
        if let Some(more) = self.count(refusal, Instant::now()) {
            let more = if more > 0 { format!(" ({more} more like this)") } else { String::new() };
            tracing::warn!("an NBD connection is refused: {refusal}{more}");
        }
    }

    /// Counts a refusal. If it is to be logged, returns the number of those that were not.
    fn count(&self, refusal: &Refusal, now: Instant) -> Option<u64> {
        // No code that panics runs under this lock.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = all.entry(discriminant(refusal)).or_default();
        if said.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            said.since += 1;
            return None;
        }
        let more = said.since;
        *said = Said { last: Some(now), since: 0 };
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_a_minute() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let stranger = Refusal::Stranger(13);
        assert_eq!(refusals.count(&stranger, at(0)), Some(0));
        assert_eq!(refusals.count(&Refusal::Share(Peer::User(12), 120), at(1)), Some(0));
        assert_eq!(refusals.count(&Refusal::Stranger(14), at(2)), None);
        assert_eq!(refusals.count(&stranger, at(59)), None);
        assert_eq!(refusals.count(&stranger, at(60)), Some(2));
        assert_eq!(refusals.count(&stranger, at(121)), Some(0));
    }
}
