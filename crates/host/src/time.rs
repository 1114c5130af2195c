//! The time since the system started, and the CPU time of a thread.
//!
//! # Why unsafe
//! clock_gettime(2) writes to a structure.

/// Whole seconds since the system started, with the time that it slept (`CLOCK_BOOTTIME`, the first
/// number of /proc/uptime). Any thread may call it; it opens no file.
#[must_use]
pub fn seconds_since_start() -> u32 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives until the call returns. On an error it stays as it is.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    u32::try_from(time.tv_sec).unwrap_or(0)
}

/// The CPU time that the calling thread has taken, in nanoseconds.
#[must_use]
pub fn thread_cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives until the call returns. On an error it stays as it is.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}
