//! Waiting for what another thread is about to do and will not announce.

use crate::atomic::spin_hint;
use crate::park;

/// How long somebody has waited: it spins for a moment, and from then on lets other threads run
/// each time, because the one it waits for may have been preempted.
#[derive(Default)]
pub struct Patience {
    looks: u32,
}

impl Patience {
    /// Nobody has waited yet.
    #[must_use]
    pub const fn new() -> Patience {
        Patience { looks: 0 }
    }

    /// Waits a little; the caller looks again.
    #[inline]
    pub fn wait(&mut self) {
        if self.looks < park::SPINS {
            self.looks += 1;
            spin_hint();
        } else {
            park::let_others_run();
        }
    }
}
