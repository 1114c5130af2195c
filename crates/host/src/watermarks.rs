//! How much memory the kernel would allocate before it looks for more: its watermarks.
//!
//! A zone of the kernel has three (kernel document `admin-guide/sysctl/vm.rst`, min_free_kbytes and
//! watermark_scale_factor). Below *low* kswapd is woken, and it goes on to *high*; at *min* whoever
//! allocates has to reclaim himself, and what is left is for those who reclaim.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A watermark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Watermark {
    /// Who allocates reclaims.
    Min,
    /// kswapd is woken.
    Low,
    /// kswapd is content.
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

/// Asks the kernel, again and again, by one open file and memory of its own.
#[derive(Debug)]
pub struct Watermarks {
    file: Option<File>,
    text: Vec<u8>,
}

/// What /proc/zoneinfo has on machines of some hundred CPUs; what is beyond is not looked at.
const ROOM: usize = 256 * 1024;

impl Default for Watermarks {
    fn default() -> Watermarks {
        Watermarks::new()
    }
}

impl Watermarks {
    /// To be asked by one thread.
    #[must_use]
    pub fn new() -> Watermarks {
        Watermarks { file: File::open("/proc/zoneinfo").ok(), text: vec![0; ROOM] }
    }

    /// What is free above each watermark now; `None` where the kernel does not tell
    /// (/proc/zoneinfo).
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

/// Sums up all zones. What a zone keeps for those who can use no other (`protection`, by the
/// highest zone the caller may use) is not for ordinary allocations.
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
            // Further down is a `high:` of each CPU's.
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
