//! Reads the kernel's watermarks: how much memory it can allocate before it reclaims.
//!
//! A kernel zone has three (kernel document `admin-guide/sysctl/vm.rst`, min_free_kbytes and
//! watermark_scale_factor). Below *low* the kernel wakes kswapd, which reclaims up to *high*. At
//! *min* the allocating task must reclaim by itself, and the rest is for reclaim.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A watermark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Watermark {
    /// The allocating task reclaims.
    Min,
    /// kswapd is woken.
    Low,
    /// kswapd stops.
    High,
}

/// Free memory above each watermark, in pages of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Above {
    pages: [u64; 3],
}

impl Above {
    /// Free memory above `watermark`, in bytes, that ordinary allocations may have.
    #[must_use]
    pub fn bytes(&self, watermark: Watermark) -> u64 {
        self.pages[watermark as usize] * crate::page_bytes()
    }
}

/// Reads /proc/zoneinfo repeatedly, with one open file and one buffer.
#[derive(Debug)]
pub struct Watermarks {
    file: Option<File>,
    text: Vec<u8>,
}

/// Bytes of /proc/zoneinfo on a machine of some hundred CPUs; the rest is not read.
const ROOM: usize = 256 * 1024;

impl Default for Watermarks {
    fn default() -> Watermarks {
        Watermarks::new()
    }
}

impl Watermarks {
    /// Opens /proc/zoneinfo. One thread at a time may use it.
    #[must_use]
    pub fn new() -> Watermarks {
        Watermarks { file: File::open("/proc/zoneinfo").ok(), text: vec![0; ROOM] }
    }

    /// The free memory above each watermark now; `None` if /proc/zoneinfo cannot be read.
    #[must_use]
    pub fn look(&mut self) -> Option<Above> {
        let (file, mut length) = (self.file.as_ref()?, 0);
        loop {
            match file.read_at(&mut self.text[length..], length as u64).ok()? {
                0 => break,
                read => length += read,
            }
        }
        parse(std::str::from_utf8(&self.text[..length]).ok()?)
    }
}

/// Sums up all zones. A zone keeps memory for allocations that can use no higher zone
/// (`protection`, by the highest zone the caller may use); an ordinary allocation cannot use it, so
/// it is subtracted.
pub(crate) fn parse(text: &str) -> Option<Above> {
    let mut above = Above::default();
    let (mut free, mut marks, mut seen) = (0, [0; 3], false);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        match (first, second) {
            (Some("pages"), Some("free")) => free = number(words.next())?,
            (Some("min"), _) => marks[0] = number(second)?,
            (Some("low"), _) => marks[1] = number(second)?,
            // Each CPU also has a `high:`, further down.
            (Some("high"), _) => marks[2] = number(second)?,
            (Some("protection:"), _) => {
                let last = line.rsplit([' ', '(']).next()?.trim_end_matches(')');
                let kept: u64 = last.parse().ok()?;
                for (above, mark) in above.pages.iter_mut().zip(marks) {
                    *above += u64::saturating_sub(free, mark + kept);
                }
                seen = true;
            }
            _ => {}
        }
    }
    seen.then_some(above)
}
