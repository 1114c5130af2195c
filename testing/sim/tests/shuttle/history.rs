//! A record of stores and reads of shared pages, and the check that they agree.
//!
//! Each store and each read has a beginning and an end by a clock of this file. A read may return
//! the page of any store that began before the read ended, unless another store began after that
//! store ended and ended before the read began. A discard is a store of zeroes, and so is a reset.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sim::content::Fill;
use testkit::Rng;
use units::{PAGE_SIZE, Page};

/// Contents of a page, all of which follow from this; 0 is zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(pub u32);

/// Objects of these versions are all of about one size.
const EVEN: u32 = 1 << 31;

impl Version {
    pub const ZEROES: Version = Version(0);

    /// The version that `thread` stores to `page` the `number`th time, from 1 on.
    pub fn new(even: bool, page: u64, thread: usize, number: u32) -> Version {
        let even = if even { EVEN } else { 0 };
        Version(even | (page as u32 & 0x7f) << 24 | (thread as u32) << 16 | number)
    }

    /// The page. It begins and ends with the version.
    pub fn render(self, page: &mut Page) {
        if self == Version::ZEROES {
            return page.fill(0);
        }
        let (low, high) = (u64::from(self.0), u64::from(self.0) << 32);
        let how = if self.0 & EVEN == 0 { Rng::new(high).below(6) } else { 6 };
        // Patterns whose halves differ are objects, others are in the slot.
        let word = if how == 1 { high | low ^ 0xffff_ffff } else { high | low };
        let fill = match how {
            0 | 1 => Fill::Words(word),
            2 => Fill::Text(word),
            3 => Fill::Noise(word),
            4 | 5 => Fill::Partly { noise: word, parts: (low % 60) as u8 },
            _ => Fill::Partly { noise: word, parts: 20 },
        };
        fill.render(page);
        page[..8].copy_from_slice(&word.to_le_bytes());
        page[PAGE_SIZE - 8..].copy_from_slice(&word.to_le_bytes());
    }

    /// The version of a page. The whole page must have it.
    pub fn of(page: &Page) -> Version {
        let (words, _) = page.as_chunks::<8>();
        let version = Version((u64::from_le_bytes(words[0]) >> 32) as u32);
        let mut whole = [0; PAGE_SIZE];
        version.render(&mut whole);
        match page.iter().zip(&whole).position(|(is, was)| is != was) {
            None => version,
            Some(at) => panic!("a page begins as {version:x?} and is another from byte {at}"),
        }
    }
}

/// The time of a store or a read, and its contents.
#[derive(Clone, Copy, Debug)]
struct Span {
    page: u64,
    version: Version,
    begun: u64,
    ended: u64,
}

/// All stores and reads of the pages.
#[derive(Default)]
pub struct History {
    clock: AtomicU64,
    /// The stores and the reads.
    spans: Mutex<(Vec<Span>, Vec<Span>)>,
}

impl History {
    /// The time. No two calls return the same.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// A store that began at `begun` has ended.
    pub fn stored(&self, page: u64, version: Version, begun: u64) {
        let span = Span { page, version, begun, ended: self.now() };
        self.spans.lock().unwrap().0.push(span);
    }

    /// A read that began at `begun` has ended.
    pub fn saw(&self, page: u64, version: Version, begun: u64) {
        let span = Span { page, version, begun, ended: self.now() };
        self.spans.lock().unwrap().1.push(span);
    }

    /// Checks the history after all threads have ended.
    pub fn judge(&self) {
        let spans = self.spans.lock().unwrap();
        let (stores, reads) = &*spans;
        for read in reads {
            let on_page = || stores.iter().filter(|store| store.page == read.page);
            let may_be = on_page().filter(|store| store.version == read.version).any(|store| {
                let overwritten =
                    |later: &Span| later.begun > store.ended && later.ended < read.begun;
                store.begun < read.ended && !on_page().any(overwritten)
            });
            assert!(
                may_be,
                "{read:x?} is not what was there: {:x?}",
                on_page().collect::<Vec<_>>()
            );
        }
    }
}
