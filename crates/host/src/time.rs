//! The time since the system started, and the CPU time of a thread.

use rustix::time::{ClockId, clock_gettime};

/// Whole seconds since the system started, with the time that it slept (`CLOCK_BOOTTIME`, the first
/// number of /proc/uptime). Any thread may call it; it opens no file.
#[must_use]
pub fn seconds_since_start() -> u32 {
    u32::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

/// The CPU time that the calling thread has taken, in nanoseconds.
#[must_use]
pub fn thread_cpu_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}
