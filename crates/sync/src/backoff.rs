//! Waiting for what another thread is about to do and will not announce.
//!
//! Loom would let two threads that wait wait for each other's turns for ever, while the third does
//! not run. So in a model each waits freely a few times; after that the rest of the execution goes
//! one way only, in which the thread that has waited least goes on.

use crate::atomic::spin_hint;
use crate::park;

/// Times that a thread of a model waits before the rest goes one way only.
#[cfg(loom)]
const FREE_WAITS: u32 = 2;

/// How long somebody has waited: it spins for a moment, and from then on lets other threads run
/// each time, because the one it waits for may have been preempted.
#[derive(Default)]
pub struct Backoff {
    looks: u32,
    #[cfg(loom)]
    waits: u32,
}

impl Backoff {
    /// Nobody has waited yet.
    #[must_use]
    pub const fn new() -> Backoff {
        Backoff {
            looks: 0,
            #[cfg(loom)]
            waits: 0,
        }
    }

    /// Waits a little; the caller looks again.
    #[inline]
    pub fn wait(&mut self) {
        #[cfg(loom)]
        {
            self.waits += 1;
            if self.waits > FREE_WAITS {
                loom::skip_branch();
            }
        }
        if self.looks < park::SPINS {
            self.looks += 1;
            spin_hint();
        } else {
            park::let_others_run();
        }
    }
}
