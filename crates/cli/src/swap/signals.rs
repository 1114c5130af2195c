//! Holds off signals that would stop or end a daemon while it serves swap space: programs whose
//! pages are there would wait for it, or lose them.
//!
//! On a signal that asks for an end (`SIGINT`, `SIGTERM`, `SIGHUP`, and meanwhile `SIGQUIT`) the
//! daemon reads everything back first, see [`crate::events`], which also answers Ctrl-Z. The other
//! signals are ignored. `SIGKILL` and `SIGSTOP` cannot be held off, and a fault of the program ends
//! it as usual.

use std::ops::RangeInclusive;

use rampack::sync::atomic::{AtomicBool, Ordering};

use crate::sys::{self, Disposition};

/// Signals that end or stop a program by default. All are ignored.
const IGNORED: [libc::c_int; 13] = [
    libc::SIGALRM,
    libc::SIGIO,
    libc::SIGPIPE,
    libc::SIGPROF,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGVTALRM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];
/// The real-time signals, without those that the C library uses itself (signal(7)).
const REAL_TIME: RangeInclusive<libc::c_int> = 34..=64;

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
    before: Vec<(libc::c_int, Disposition)>,
}

impl HeldSignals {
    /// Begins to hold the signals off. A signal that cannot be ignored keeps its effect.
    #[must_use]
    pub fn begin() -> HeldSignals {
        let ignore = |signal| Some((signal, sys::ignore(signal).ok()?));
        let before = IGNORED.into_iter().chain(REAL_TIME).filter_map(ignore).collect();
        HELD.store(true, Ordering::Relaxed);
        HeldSignals { before }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Relaxed);
        for (signal, before) in &self.before {
            sys::restore(*signal, before);
        }
    }
}
