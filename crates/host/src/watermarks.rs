//! How much memory the kernel would lend before it looks for more: its watermarks.
//!
//! A zone of the kernel has three (kernel document `admin-guide/sysctl/vm.rst`, min_free_kbytes and
//! watermark_scale_factor). Below *low* kswapd is woken, and it goes on to *high*; at *min* whoever
//! allocates has to reclaim himself, and what is left is for those who reclaim.

use std::fs;
use std::io::Read;

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
    text: String,
}

/// More than /proc/zoneinfo has for a CPU and for a zone.
const ROOM: usize = 64 * 1024;

impl Default for Watermarks {
    fn default() -> Watermarks {
        Watermarks::new()
    }
}

impl Watermarks {
    /// To be asked by one thread.
    #[must_use]
    pub fn new() -> Watermarks {
        Watermarks { text: String::with_capacity(ROOM) }
    }

    /// What is free above each watermark now; `None` where the kernel does not tell
    /// (/proc/zoneinfo).
    #[must_use]
    pub fn look(&mut self) -> Option<Above> {
        self.text.clear();
        fs::File::open("/proc/zoneinfo").ok()?.read_to_string(&mut self.text).ok()?;
        parse(&self.text)
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
