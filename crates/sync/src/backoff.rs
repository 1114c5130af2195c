//! A backoff for waits that no other thread ends with a wake-up.
//!
//! Under loom, two waiting threads could yield to each other for ever while the third does not run.
//! So in a model each thread waits freely a few times. After that loom explores one order only, in
//! which the thread that has waited least runs.

use crate::atomic::spin_hint;
use crate::park;

/// Free waits of a thread of a model.
#[cfg(loom)]
const FREE_WAITS: u32 = 2;

/// The wait of one thread so far. The thread spins for a moment. Then it lets other threads run
/// each time, because the thread it waits for may have been preempted.
#[derive(Default)]
pub struct Backoff {
    looks: u32,
    #[cfg(loom)]
    waits: u32,
}

impl Backoff {
    /// A backoff without waits.
    #[must_use]
    pub const fn new() -> Backoff {
        Backoff {
            looks: 0,
            #[cfg(loom)]
            waits: 0,
        }
    }

    /// Waits a little. The caller checks again.
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

    /// Waits a little for something that may take long: lets other threads run at first, and then
    /// sleeps, a millisecond at most. The caller checks again.
    #[cold]
    pub fn nap(&mut self) {
        park::nap(self.looks);
        self.looks = self.looks.saturating_add(1);
    }
}
