//! The memory of the machine, and the part that this process has.
//!
//! # Why unsafe
//! One call of sysconf(3), which takes a number and returns one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of physical memory of the machine (`MemTotal` of /proc/meminfo, proc_meminfo(5)); it
/// ignores the limits of a memcg. 0 if the file cannot be read.
#[must_use]
pub fn total_memory() -> u64 {
    field_in_kib("/proc/meminfo", "MemTotal:").unwrap_or(0)
}

/// Bytes that can be allocated without swapping (`MemAvailable` of /proc/meminfo, proc_meminfo(5)).
/// 0 if the file cannot be read.
#[must_use]
pub fn available_memory() -> u64 {
    field_in_kib("/proc/meminfo", "MemAvailable:").unwrap_or(0)
}

/// Reads `MemAvailable` again and again from one open file.
#[derive(Debug)]
pub(crate) struct Available(File);

impl Available {
    pub(crate) fn open() -> io::Result<Available> {
        File::open("/proc/meminfo").map(Available)
    }

    /// As [`available_memory`].
    pub(crate) fn bytes(&self) -> u64 {
        // The line is the third one.
        let mut text = [0; 1024];
        let length = self.0.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        parse_field_in_kib(text, "MemAvailable:").unwrap_or(0)
    }
}

/// Resident bytes of this process now.
///
/// This is `Rss` of /proc/self/smaps_rollup (proc_pid_smaps(5)), for which the kernel walks the
/// page tables: exact, but it takes milliseconds per gigabyte. If that file is missing, it is the
/// second number of /proc/self/statm, which is fast but may lag by some dozens of pages per thread.
/// 0 if neither can be read.
#[must_use]
pub fn resident_bytes() -> u64 {
    field_in_kib("/proc/self/smaps_rollup", "Rss:").or_else(resident_from_statm).unwrap_or(0)
}

/// Bytes of anonymous memory of this process that are resident now: without pages of files, such as
/// its program's code. `None` if `Anonymous` of /proc/self/smaps_rollup cannot be read.
#[must_use]
pub fn anonymous_bytes() -> Option<u64> {
    field_in_kib("/proc/self/smaps_rollup", "Anonymous:")
}

fn resident_from_statm() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Bytes in a page of the operating system; it may differ from 4096.
#[must_use]
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf takes a number and returns one.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

fn field_in_kib(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    parse_field_in_kib(&text, name)
}

/// Parses the bytes from a line such as `Rss: 4 kB`.
pub(crate) fn parse_field_in_kib(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}
