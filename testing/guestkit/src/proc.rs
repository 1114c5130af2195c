//! A reader of `/proc` that allocates no memory. A program that watches a machine without free
//! memory must not wait for memory.
//!
//! # Why unsafe
//! The standard library lists a directory on the heap. Here the system call writes to a buffer.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::str;

/// The text of a small file at its last read.
pub struct Text {
    bytes: Box<[u8]>,
    length: usize,
}

impl Text {
    /// Makes a buffer for a file of 32 KiB.
    #[must_use]
    pub fn new() -> Text {
        Text { bytes: vec![0; 32 << 10].into_boxed_slice(), length: 0 }
    }

    /// Reads `file` from its beginning. After a failure the text is empty.
    pub fn read(&mut self, file: &mut File) -> &str {
        self.length = 0;
        let mut take = || -> io::Result<()> {
            file.rewind()?;
            while self.length < self.bytes.len() {
                match file.read(&mut self.bytes[self.length..])? {
                    0 => break,
                    some => self.length += some,
                }
            }
            Ok(())
        };
        if take().is_err() {
            self.length = 0;
        }
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Default for Text {
    fn default() -> Text {
        Text::new()
    }
}

/// The number after `name` in a file of lines such as `MemFree:  1234 kB` and `pswpin 12`.
#[must_use]
pub fn value(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.strip_prefix(':').or_else(|| rest.strip_prefix(' '))
    });
    let number = rest.and_then(|rest| rest.split_ascii_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The fields of a thread's `stat` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The name of the thread.
    pub name: &'a str,
    /// Faults without I/O.
    pub minor: u64,
    /// Faults that waited for I/O.
    pub major: u64,
}

/// Reads the text of a `stat` file; see proc_pid_stat(5).
#[must_use]
pub fn stat(text: &str) -> Option<Stat<'_>> {
    // The name may contain parentheses and blanks.
    let (before, after) = text.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let mut fields = after.split_ascii_whitespace();
    // The third field comes after the name. The faults are the tenth and the twelfth field.
    let minor = fields.nth(7)?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some(Stat { name, minor, major })
}

/// The name of a thread's group: the thread's name up to a number.
#[must_use]
pub fn group(thread: &str) -> &str {
    let end = thread.find(|c: char| c.is_ascii_digit()).unwrap_or(thread.len());
    thread[..end].trim_end_matches(|c: char| !c.is_alphanumeric())
}

/// Calls `each` for each entry of the open directory whose name is a number, with that number.
pub fn numbers(directory: &mut File, buffer: &mut [u64], mut each: impl FnMut(u64)) {
    if directory.rewind().is_err() {
        return;
    }
    loop {
        let bytes = size_of_val(buffer);
        // SAFETY: the kernel writes at most `bytes` bytes into the buffer, which is borrowed
        // mutably.
        let got = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                buffer.as_mut_ptr(),
                bytes as libc::c_uint,
            )
        };
        let Ok(got @ 1..) = usize::try_from(got) else { return };
        // SAFETY: any bytes are valid `u8`s, and the kernel wrote `got` of them to the buffer.
        let records =
            unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), got.min(bytes)) };
        entries(records, &mut each);
    }
}

/// The records of getdents64(2): number, offset (8 bytes each), length (2), type (1), name, zero.
fn entries(mut records: &[u8], each: &mut impl FnMut(u64)) {
    while records.len() > 19 {
        let length = usize::from(u16::from_ne_bytes([records[16], records[17]]));
        if length <= 19 || length > records.len() {
            return;
        }
        let name = records[19..length].split(|byte| *byte == 0).next().unwrap_or_default();
        if let Some(number) = str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
            each(number);
        }
        records = &records[length..];
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{Stat, Text, group, numbers, stat, value};

    #[test]
    fn values_are_of_whole_names() {
        let text = "MemTotal:     100 kB\nMemFree:       42 kB\npswpin 7\npswpin_x 8\n";
        assert_eq!(value(text, "MemFree"), 42);
        assert_eq!(value(text, "pswpin"), 7);
        assert_eq!(value(text, "pswp"), 0);
        assert_eq!(value("", "pswpin"), 0);
    }

    #[test]
    fn faults_stand_after_the_name() {
        let text = "12 (a (b) 3) S 1 12 12 0 -1 4194624 505 0 17 0 6 8 0 0 20 0 1";
        assert_eq!(stat(text), Some(Stat { name: "a (b) 3", minor: 505, major: 17 }));
        assert_eq!(stat("12 (a) S 1 12"), None);
        assert_eq!(stat(""), None);
    }

    #[test]
    fn groups_end_before_the_number() {
        assert_eq!(group("fuse-12"), "fuse");
        assert_eq!(group("clock"), "clock");
        assert_eq!(group("swap0/evict"), "swap");
        assert_eq!(group("7"), "");
    }

    #[test]
    fn this_process_is_read() {
        let mut text = Text::new();
        let mut status = File::open("/proc/self/status").unwrap();
        for _ in 0..2 {
            assert!(value(text.read(&mut status), "Threads") > 0);
        }
        let mut tasks = File::open("/proc/self/task").unwrap();
        let mut found = Vec::new();
        numbers(&mut tasks, &mut [0; 512], |number| found.push(number));
        assert!(found.contains(&u64::from(std::process::id())) && !found.contains(&0));
        let own = |thread| std::path::Path::new(&format!("/proc/self/task/{thread}")).exists();
        assert!(found.iter().any(own), "{found:?}");
    }
}
