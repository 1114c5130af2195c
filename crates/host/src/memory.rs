//! The memory of the machine, the part that this process has, and what limits it.
//!
//! # Why unsafe
//! sysconf(3) takes a number and returns one. Whether there is room is tried with mmap(2).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::{io, ptr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use units::human;

use crate::groups::{GroupLimit, group_limits};

/// Bytes of memory that this process can have: all memory of the machine ([`machine_memory`]), or
/// less in a control group with a limit. 0 if neither can be read.
#[must_use]
pub fn total_memory() -> u64 {
    smaller(machine_memory(), &group_limits())
}

pub(crate) fn smaller(machine: u64, limits: &[GroupLimit]) -> u64 {
    let limits = limits.iter().map(|limit| limit.bytes);
    limits.chain(Some(machine).filter(|bytes| *bytes > 0)).min().unwrap_or(0)
}

/// Bytes of physical memory of the machine (`MemTotal` of /proc/meminfo, proc_meminfo(5)). 0 if the
/// file cannot be read.
#[must_use]
pub fn machine_memory() -> u64 {
    field_in_kib("/proc/meminfo", "MemTotal:").unwrap_or(0)
}

/// Bytes of memory that the kernel's zswap takes, and of pages that it holds (`Zswap` and
/// `Zswapped` of /proc/meminfo, Linux 5.19). `None` where there is none.
#[must_use]
pub fn kernel_zswap() -> Option<(u64, u64)> {
    let field = |name| field_in_kib("/proc/meminfo", name);
    Some((field("Zswap:")?, field("Zswapped:")?))
}

/// A limit that a process inherits (getrlimit(2)), and how a shell shows and sets it (ulimit(1)).
type Inherited = (Resource, &'static str);

const DATA: Inherited = (Resource::Data, "ulimit -d");
const ADDRESSES: Inherited = (Resource::As, "ulimit -v");
const STACK: Inherited = (Resource::Stack, "ulimit -s");
const DESCRIPTORS: Inherited = (Resource::Nofile, "ulimit -n");

/// The limit as a shell's user knows it; None without one.
fn named((resource, name): Inherited) -> Option<String> {
    let limit = getrlimit(resource).current?;
    Some(match resource {
        Resource::Nofile => format!("`{name}` is {limit}"),
        _ => format!("`{name}` is {}", human(limit)),
    })
}

/// What limits the memory of this process, each by its name and value: its own limits on data and
/// addresses, and those of its control groups. Empty if nothing does.
#[must_use]
pub fn limits_on_memory() -> String {
    let own = [DATA, ADDRESSES].into_iter().filter_map(named);
    let groups = group_limits();
    own.chain(groups.iter().map(GroupLimit::to_string)).collect::<Vec<_>>().join(", ")
}

/// Whether this process may have `bytes` more now, as addresses and as data.
#[must_use]
pub fn has_room_for(bytes: u64) -> bool {
    let Ok(bytes) = usize::try_from(bytes) else { return false };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new private mapping overlaps no other, and nobody else knows it.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return false;
        }
        libc::munmap(at, bytes);
    }
    true
}

/// Lets this process, and those that it starts, have as many descriptors as it may raise its limit
/// to, and 65536 at most. A login and a service of systemd begin with 1024.
///
/// # Errors
/// The limit, by its name and value, if that is fewer than `least`.
pub fn allow_descriptors(least: u64) -> Result<(), String> {
    const ENOUGH: u64 = 65536;
    let now = getrlimit(DESCRIPTORS.0);
    let most = now.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    let has = now.current.unwrap_or(u64::MAX);
    let raised = Rlimit { current: Some(most), ..now };
    let is_raised = most > has && setrlimit(DESCRIPTORS.0, raised).is_ok();
    match if is_raised { most } else { has } {
        has if has < least => Err(named(DESCRIPTORS).unwrap_or_default()),
        _ => Ok(()),
    }
}

/// Lets the stack of the first thread grow to `least` bytes. The system looks at the limit when the
/// stack grows.
///
/// # Errors
/// The limit, by its name and value, if it is lower and cannot be raised.
pub fn allow_stack(least: u64) -> Result<(), String> {
    let now = getrlimit(STACK.0);
    if now.current.is_none_or(|bytes| bytes >= least) {
        return Ok(());
    }
    let maximum = now.maximum.map(|most| most.max(least));
    setrlimit(STACK.0, Rlimit { current: Some(least), maximum })
        .map_err(|_| named(STACK).unwrap_or_default())
}

/// Reads `MemAvailable` again and again from one open file.
#[derive(Debug)]
pub(crate) struct Available(File);

impl Available {
    pub(crate) fn open() -> io::Result<Available> {
        File::open("/proc/meminfo").map(Available)
    }

    /// Bytes that can be allocated without swapping (proc_meminfo(5)); 0 if that cannot be read.
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
