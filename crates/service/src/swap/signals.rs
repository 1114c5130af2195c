//! Holds off signals that would stop or end a daemon while it serves swap space: programs whose
//! pages are there would wait for it, or lose them.
//!
//! On a signal that asks for an end (`SIGINT`, `SIGTERM`, `SIGUSR1`, and meanwhile `SIGQUIT`) the
//! daemon reads everything back first, or leaves it to the next one, see [`crate::events`], which
//! also answers Ctrl-Z. The other signals are ignored. `SIGKILL` and `SIGSTOP` cannot be held off,
//! and a fault of the program ends it as usual.

use std::ops::RangeInclusive;

use host::{Disposition, ignore, restore, signal};
use sync::atomic::{AtomicBool, Ordering};

/// Signals that end or stop a program by default. All are ignored.
const IGNORED: [i32; 12] = [
    signal::SIGALRM,
    signal::SIGIO,
    signal::SIGPIPE,
    signal::SIGPROF,
    signal::SIGPWR,
    signal::SIGSTKFLT,
    signal::SIGTTIN,
    signal::SIGTTOU,
    signal::SIGUSR2,
    signal::SIGVTALRM,
    signal::SIGXCPU,
    signal::SIGXFSZ,
];
/// The real-time signals, without those that the C library uses itself (signal(7)).
const REAL_TIME: RangeInclusive<i32> = 34..=64;

static HELD: AtomicBool = AtomicBool::new(false);

/// Are the signals held off now?
#[must_use]
pub fn are_held() -> bool {
    // Relaxed: the flag guards no memory.
    HELD.load(Ordering::Relaxed)
}

/// Holds the signals off until it is dropped. They have their earlier effect again then. A process
/// has one at a time.
pub struct HeldSignals {
    before: Vec<(i32, Disposition)>,
}

impl HeldSignals {
    /// Begins to hold the signals off. A signal that cannot be ignored keeps its effect.
    #[must_use]
    pub fn begin() -> HeldSignals {
        let ignore = |signal| Some((signal, ignore(signal).ok()?));
        let before = IGNORED.into_iter().chain(REAL_TIME).filter_map(ignore).collect();
        HELD.store(true, Ordering::Relaxed);
        HeldSignals { before }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Relaxed);
        for (signal, before) in &self.before {
            restore(*signal, before);
        }
    }
}
