//! A scheduling point of shuttle before each operation on an atomic.
//!
//! Shuttle runs one thread at a time, so every ordering acts as sequential consistency here. The
//! loom tests check that the orderings suffice. Outside an execution of shuttle these are the
//! processor's plain atomics.

use core::time::Duration;

use shuttle::rand::RngCore;

/// One of this many weak exchanges fails spuriously, as on hardware.
const FAILS_ONE_IN: u64 = 8;

/// Whether this thread belongs to an execution of shuttle.
pub(crate) fn in_an_execution() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// A scheduling point: another thread may run now.
#[inline]
pub(crate) fn point() {
    if in_an_execution() {
        // Shuttle has no time, so this is only a scheduling point.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// Lets another thread run now, if any can.
pub(super) fn let_others_run() {
    if in_an_execution() {
        shuttle::thread::yield_now();
    } else {
        std::thread::yield_now();
    }
}

pub(super) fn fails_for_no_reason() -> bool {
    in_an_execution() && shuttle::rand::thread_rng().next_u64().is_multiple_of(FAILS_ONE_IN)
}
