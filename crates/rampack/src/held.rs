//! The engine of a store, as the store and upkeep have it.

use std::ops::Deref;
use std::time::UNIX_EPOCH;

use values::{At, Values};

use crate::Error;
use crate::kept::Kept;

/// The engine of a store, and the directory that it may be kept in.
pub(crate) struct Held {
    values: Values,
    /// Dropped after the values.
    kept: Option<Kept>,
}

impl Held {
    pub fn new(values: Values, kept: Option<Kept>) -> Held {
        Held { values, kept }
    }

    /// The CPU of this thread, and the second: on the clock of the system, or the time of day if
    /// lives outlive the process.
    pub fn here(&self) -> At {
        match self.kept {
            None => At { cpu: host::cpu(), now: host::seconds_since_start() },
            Some(_) => {
                let now = UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
                At { cpu: host::cpu(), now: u32::try_from(now).unwrap_or(u32::MAX) }
            }
        }
    }

    /// A round of upkeep that looks at so many places.
    pub fn upkeep(&self, looks: usize) {
        self.values.upkeep(self.here(), looks);
    }

    /// Whether the memory of the store can have a limit.
    pub fn judge_limit(&self, limit: u64) -> Result<(), Error> {
        self.kept.as_ref().map_or(Ok(()), |kept| kept.judge_limit(limit))
    }

    /// Bytes of frames that are not of the machine.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Kept::used_bytes)
    }
}

impl Deref for Held {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}
