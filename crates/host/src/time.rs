//! The time since the system started, and the CPU time of a thread.
//!
//! # Why unsafe
//! A call into libc, with a buffer of its own. rustix has it in safe Rust, and looks for the vDSO
//! where the kernel says it is: under valgrind, where that is not mapped, it crashes.

use std::mem::MaybeUninit;

/// Whole seconds since the system started, with the time that it slept (`CLOCK_BOOTTIME`, the first
/// number of /proc/uptime). Any thread may call it; it opens no file.
#[must_use]
pub fn seconds_since_start() -> u32 {
    u32::try_from(read(libc::CLOCK_BOOTTIME).0).unwrap_or(0)
}

/// Nanoseconds since the system started, without the time that it slept (`CLOCK_MONOTONIC`).
pub(crate) fn nanoseconds_since_start() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// The CPU time that the calling thread has taken, in nanoseconds.
#[must_use]
pub fn thread_cpu_time() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let (seconds, nanoseconds) = read(clock);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Seconds and nanoseconds of a clock; 0 if the system has none of this kind.
fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: it writes a time into the buffer, or nothing.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    (part(time.tv_sec), part(time.tv_nsec))
}
