//! A log that outlives its process: what slots do not say is in memory that outlives it, too.
//!
//! | word | what |
//! |---|---|
//! | 0 | bits 0–31: the number of segments; 32–63: MiB of each |
//! | 1 … | what is known of each segment: see [`segments::Keep`] |
//!
//! The next process opens the device for itself alone, so no write of this one is under way then.
//! It claims the place that each slot names, and has the account of them.

use core::fmt;

use alloc::boxed::Box;
use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use segments::{Keep, Layout, Misplaced, Place, Survivors};
use sync::Mutex;
use sync::atomic::{AtomicU64, Ordering};

use crate::backed::Backed;
use crate::device::LogDevice;
use crate::log::PageLog;
use crate::table::Whereabouts;

/// Where the layout is kept. The words of segments are behind it.
const LAYOUT_AT: usize = 0;
const COUNT_BITS: u32 = 32;

/// The words of a log, in memory that outlives the process.
struct Words(LazyTable<AtomicU64>);

impl Words {
    /// Words for `count` segments: zeroes, or what another process left.
    fn new(provider: &dyn MemoryProvider, count: u32) -> Result<Words, NoMemory> {
        Ok(Words(LazyTable::provided(provider, count as usize + 1)?))
    }

    fn get(&self, at: usize) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.0.get(at).load(Ordering::Acquire)
    }

    fn set(&self, at: usize, word: u64) {
        // Release pairs with the Acquire in `get`, of another process.
        self.0.get(at).store(word, Ordering::Release);
    }
}

impl Keep for Words {
    fn keep(&self, segment: u32, word: u64) {
        #[cfg(killed)]
        if sync::atomic::killed::has(sync::atomic::killed::Flaw::ForgetsSegments) {
            return;
        }
        self.set(1 + segment as usize, word);
    }
}

/// Why nothing can be said of a log that another process left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotLeft {
    /// Memory is out.
    NoMemory,
    /// There is nothing about a log.
    Nothing,
    /// The device has not the size that it had.
    Size {
        /// Bytes that the log needs.
        log: u64,
        /// Bytes of the device, in whole segments.
        device: u64,
    },
}

impl fmt::Display for NotLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLeft::NoMemory => write!(f, "no memory for the account of a log"),
            NotLeft::Nothing => write!(f, "nothing was kept of its log"),
            NotLeft::Size { log, device } => {
                write!(f, "it had a log of {log} bytes on a device that has {device} bytes now")
            }
        }
    }
}

impl core::error::Error for NotLeft {}

/// What another process left of a log. Any number of threads may claim places at once.
pub struct Left {
    /// Until the log goes on with it.
    log: Mutex<Option<segments::Left>>,
    words: Words,
}

impl Left {
    /// A slot names this place.
    ///
    /// # Errors
    /// No such object can be there.
    pub fn claim(&self, place: Backed) -> Result<(), Misplaced> {
        let mut log = self.log.lock();
        let log = log.as_mut().ok_or(Misplaced::Outside)?;
        log.claim(Place::from_word(place.block), place.length)
    }
}

/// A finding of [`LogDevice::recover`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// What was kept of this segment cannot be: no object is there.
    Segment(u32),
    /// The word of this page cannot be. Its reads fail until it is written again.
    Page(u64, Option<Misplaced>),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Segment(number) => {
                write!(f, "what was kept of segment {number} of its log cannot be (K24)")
            }
            Finding::Page(page, None) => {
                write!(f, "page {page} of its log: it has a word that cannot be (K25)")
            }
            Finding::Page(page, Some(why)) => write!(f, "page {page} of its log: {why} (K25)"),
        }
    }
}

impl LogDevice {
    /// Lets the pages outlive the process from now on: another one has the memory of `words` and
    /// that of the table, which [`LogDevice::new`] was given. Nothing was written yet.
    ///
    /// # Errors
    /// Memory is out; the pages end with the process then.
    pub fn keep(&self, words: &dyn MemoryProvider) -> Result<(), NoMemory> {
        self.log.keep(words)
    }

    /// Goes on with what another process left in the memory of `words` and of the table. `found`
    /// is told what cannot be. Nothing was done with this device yet, and no write of the other
    /// process is under way. If this process dies meanwhile, another can do the same.
    ///
    /// # Errors
    /// See [`NotLeft`]; nothing has changed.
    pub fn recover(
        &self,
        words: &dyn MemoryProvider,
        mut found: impl FnMut(Finding),
    ) -> Result<(), NotLeft> {
        let left = self.log.left(words, |segment| found(Finding::Segment(segment)))?;
        for index in 0..self.table.len() {
            let why = match self.table.get(index) {
                Whereabouts::Logged(place) => match left.claim(place) {
                    Ok(()) => continue,
                    Err(why) => Some(why),
                },
                Whereabouts::Lost if !self.table.is_lost(index) => None,
                _ => continue,
            };
            self.table.set(index, Whereabouts::Lost);
            found(Finding::Page(index as u64, why));
        }
        self.log.adopt(left);
        self.written.store(self.log.last_time(), Ordering::Relaxed);
        Ok(())
    }
}

impl PageLog {
    /// The time of the last object that was new.
    pub(crate) fn last_time(&self) -> u32 {
        self.account.lock().last_time()
    }

    /// Lets the log outlive the process from now on: another one has the memory of `provider`, and
    /// the slots. Until now it did not, and it is empty.
    ///
    /// # Errors
    /// Memory is out; the log ends with the process then.
    pub fn keep(&self, provider: &dyn MemoryProvider) -> Result<(), NoMemory> {
        let mut account = self.account.lock();
        // What was tried before is given up.
        account.keep(None);
        let words = Words::new(provider, account.count())?;
        words.set(LAYOUT_AT, layout_word(account.layout(), account.count()));
        account.keep(Some(Box::new(words)));
        Ok(())
    }

    /// What another process left of the log in the memory of `provider`. Nothing was written to
    /// this one yet. `bad` is told of segments of which nothing is known; no object is there.
    ///
    /// # Errors
    /// See [`NotLeft`]; nothing has changed.
    pub fn left(
        &self,
        provider: &dyn MemoryProvider,
        bad: impl FnMut(u32),
    ) -> Result<Left, NotLeft> {
        let (layout, count) = {
            let account = self.account.lock();
            (account.layout(), account.count())
        };
        let words = Words::new(provider, count).map_err(|_| NotLeft::NoMemory)?;
        let was = match words.get(LAYOUT_AT) {
            0 => return Err(NotLeft::Nothing),
            word => layout_of(word),
        };
        // A larger device keeps the log that it had.
        let fits = was.bytes <= layout.bytes && was.segment_bytes <= layout.segment_bytes;
        let size = || NotLeft::Size { log: was.bytes, device: whole(layout, count) };
        if !fits {
            return Err(size());
        }
        let log = segments::Left::new(was, |segment| words.get(1 + segment as usize), bad);
        let log = log.map_err(|error| match error {
            segments::LayoutError::NoMemory => NotLeft::NoMemory,
            _ => size(),
        })?;
        Ok(Left { log: Mutex::new(Some(log)), words })
    }

    /// Goes on with what another process left, after all places were claimed.
    pub fn adopt(&self, left: Left) {
        let Left { log, words } = left;
        if let Some(log) = log.lock().take() {
            *self.account.lock() = log.finish(Some(Box::new(words)));
        }
    }
}

fn whole(layout: Layout, count: u32) -> u64 {
    u64::from(count) * u64::from(layout.segment_bytes)
}

fn layout_word(layout: Layout, count: u32) -> u64 {
    u64::from(count) | u64::from(layout.segment_bytes >> 20) << COUNT_BITS
}

fn layout_of(word: u64) -> Layout {
    // A size that is none is refused with the layout.
    let segment_bytes = ((word >> COUNT_BITS) as u32).checked_shl(20).unwrap_or(0);
    let bytes = u64::from(word as u32) * u64::from(segment_bytes);
    Layout { bytes, segment_bytes, survivors: Survivors::Apart }
}
