//! Signals that would stop or end a daemon, which do neither while it serves swap space: everybody
//! whose pages are there would wait for it, or lose them.
//!
//! What asks for an end (`SIGINT`, `SIGTERM`, `SIGHUP`, and `SIGQUIT` meanwhile) has everything
//! read back first, see [`crate::events`], where Ctrl-Z is answered as well. The others are
//! ignored. Nothing can be done about `SIGKILL` and `SIGSTOP`, and a fault of the program ends it
//! as ever.

use std::ops::RangeInclusive;

use rampack::sync::atomic::{AtomicBool, Ordering};

use crate::sys::{self, Disposition};

/// What no program expects to survive without asking: all of these end or stop it.
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
/// Those of real time, without the ones that the C library has for itself (signal(7)).
const REAL_TIME: RangeInclusive<libc::c_int> = 34..=64;

static HELD: AtomicBool = AtomicBool::new(false);

/// Are the signals held off now?
#[must_use]
pub fn are_held() -> bool {
    // Relaxed: it is one flag, and guards no memory.
    HELD.load(Ordering::Relaxed)
}

/// Holds them off until it is dropped; they do then what they did before. A process has one at a
/// time.
pub struct HeldSignals {
    before: Vec<(libc::c_int, Disposition)>,
}

impl HeldSignals {
    /// Begins. A signal that cannot be ignored does what it did.
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
