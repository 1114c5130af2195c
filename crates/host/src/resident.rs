//! Makes all memory resident for threads that must not wait for memory, and counts their page
//! faults.
//!
//! # Why unsafe
//! madvise(2) on mappings of this process from /proc/self/maps.

use std::fs;
use std::io;

/// Populate a range as a read would (Linux 5.14, madvise(2)).
const MADV_POPULATE_READ: libc::c_int = 22;
/// Populate a range as a write would.
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// A larger mapping without a name is a stack of another thread, a buffer or a region. Its owner
/// populates it if needed.
const LARGE: u64 = 1 << 20;

/// What glibc reserves for an arena, the heap of some threads: aligned to its length, of which the
/// first part is in use, and the rest has no access (`HEAP_MAX_SIZE`).
const ARENA: u64 = 64 << 20;

/// A line of /proc/self/maps (proc_pid_maps(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub shared: bool,
    /// The file's path, or the kernel's name; empty for other memory.
    pub name: String,
}

impl Mapped {
    pub fn parse(line: &str) -> Option<Mapped> {
        let mut words = line.split_ascii_whitespace();
        let (range, access) = (words.next()?, words.next()?.as_bytes());
        let (start, end) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let has = |n: usize, letter: u8| access.get(n) == Some(&letter);
        // Skips offset, device and inode number of the file.
        let name = words.skip(3).collect::<Vec<_>>().join(" ");
        let (readable, writable, shared) = (has(0, b'r'), has(1, b'w'), has(3, b's'));
        Some(Mapped { start: number(start)?, end: number(end)?, readable, writable, shared, name })
    }

    /// Whether it is the part in use of an arena, `next` being the mapping after it.
    pub fn is_arena(&self, next: Option<&Mapped>) -> bool {
        let is_rest = |it: &Mapped| {
            let follows = it.start == self.end && it.end == self.start + ARENA;
            follows && it.name.is_empty() && !it.readable && !it.writable
        };
        self.name.is_empty()
            && self.writable
            && self.start.is_multiple_of(ARENA)
            && next.is_some_and(is_rest)
    }

    /// The advice that populates it; None to leave it.
    pub fn advice(&self) -> Option<libc::c_int> {
        let wanted = match &*self.name {
            "[heap]" | "[stack]" => true,
            "" => self.end - self.start <= LARGE,
            // Code and data of the program and its libraries. The kernel's own mappings ([vdso],
            // [vvar]) are always in memory.
            name => name.starts_with('/') && !self.shared,
        };
        match (wanted && self.readable, self.writable) {
            (false, _) => None,
            (true, true) => Some(MADV_POPULATE_WRITE),
            (true, false) => Some(MADV_POPULATE_READ),
        }
    }
}

/// Populates the code and the data of this program and its libraries, the heap and the arenas of
/// glibc, the stack of its first thread and small mappings. After [`crate::lock_memory`] they stay
/// in memory, and so does all that is mapped later.
///
/// # Errors
/// The error of madvise(2) for the first part that could not be populated; `EINVAL` before Linux
/// 5.14.
pub fn make_resident() -> io::Result<()> {
    let here = 0u8;
    let page = crate::page_bytes() as usize;
    // This page is mapped, so an error here means that the kernel lacks the call.
    let at = &raw const here as usize / page * page;
    populate(at, page, MADV_POPULATE_READ)?;
    let text = fs::read_to_string("/proc/self/maps")?;
    let all: Vec<Mapped> = text.lines().filter_map(Mapped::parse).collect();
    for (n, mapped) in all.iter().enumerate() {
        let arena = || mapped.is_arena(all.get(n + 1)).then_some(MADV_POPULATE_WRITE);
        let Some(advice) = mapped.advice().or_else(arena) else { continue };
        let length = (mapped.end - mapped.start) as usize;
        if let Err(error) = populate(mapped.start as usize, length, advice) {
            match error.raw_os_error() {
                // The mapping is gone or has another access, or the page lies past the end of its
                // file.
                Some(libc::ENOMEM | libc::EINVAL | libc::EFAULT) => {}
                _ => return Err(error),
            }
        }
    }
    Ok(())
}

fn populate(start: usize, length: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: populating changes no contents. If the range is unmapped or mapped anew meanwhile,
    // the call fails or populates the new mapping.
    let result = unsafe { libc::madvise(start as *mut libc::c_void, length, advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of the calling thread (gettid(2)).
#[must_use]
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Page faults of a thread so far (proc_pid_stat(5)).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// Faults without a read from a device.
    pub minor: u64,
    /// Faults with a read from a device.
    pub major: u64,
}

/// The page faults of a thread of this process; `None` if there is no such thread.
#[must_use]
pub fn thread_faults(thread: i32) -> Option<Faults> {
    parse_faults(&fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?)
}

pub(crate) fn parse_faults(stat: &str) -> Option<Faults> {
    // The name may contain blanks and parentheses; it ends at the last parenthesis.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    // Field 3 comes first: minor faults are field 10, major ones 12.
    let minor = fields.nth(7)?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some(Faults { minor, major })
}
