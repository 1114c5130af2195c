//! A log that outlives its process: what slots do not say is in memory that outlives it, too.
//!
//! | word | what |
//! |---|---|
//! | 0 | bits 0–31: the number of segments; 32–42: MiB of each; 43: its pages have codecs |
//! | 1 … | what is known of each segment: see [`segments::Keep`] |
//!
//! The next process opens the device for itself alone, so no write of this one is under way then.
//! It claims the place that each slot names, and has the account of them.

use core::fmt;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use segments::{Keep, Layout};
use sync::atomic::{AtomicU64, Ordering};

/// Where the layout is kept. The words of segments are behind it.
pub(crate) const LAYOUT_AT: usize = 0;
const COUNT_BITS: u32 = 32;
const MIB_MASK: u64 = 0x7ff;
/// To programs that know no codecs in the table of a device, the device is too small with it.
pub(crate) const HAS_CODECS: u64 = 1 << 43;

/// The words of a log, in memory that outlives the process.
pub(crate) struct Words(LazyTable<AtomicU64>);

/// Devices from this size on have segments of 4 MiB.
pub(crate) const LARGE: u64 = 1 << 30;
/// There are words for so many segments at least: a log that was made on a smaller device has
/// smaller ones, but all below [`LARGE`].
const LEAST: u32 = (LARGE >> 20) as u32;

impl Words {
    /// Words for `count` segments, or more: zeroes, or what another process left.
    pub(crate) fn new(provider: &dyn MemoryProvider, count: u32) -> Result<Words, NoMemory> {
        Ok(Words(LazyTable::provided(provider, 1 + count.max(LEAST) as usize)?))
    }

    /// The number of segments that there are words for.
    pub(crate) fn segments(&self) -> u64 {
        self.0.len() as u64 - 1
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        // Acquire pairs with the Release in `set`.
        self.0.get(at).load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, at: usize, word: u64) {
        // Release pairs with the Acquire in `get`, of another process.
        self.0.get(at).store(word, Ordering::Release);
    }
}

impl Keep for Words {
    fn keep(&self, segment: u32, word: u64) {
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

/// What another process left of a log.
pub(crate) struct Left {
    pub(crate) log: segments::Left,
    pub(crate) words: Words,
}

pub(crate) fn whole(layout: Layout, count: u32) -> u64 {
    u64::from(count) * u64::from(layout.segment_bytes)
}

pub(crate) fn layout_word(layout: Layout, count: u32) -> u64 {
    u64::from(count) | u64::from(layout.segment_bytes >> 20) << COUNT_BITS
}

pub(crate) fn layout_of(word: u64) -> Layout {
    // A size of 0 is refused with the layout.
    let segment_bytes = ((word >> COUNT_BITS & MIB_MASK) as u32) << 20;
    let bytes = u64::from(word as u32) * u64::from(segment_bytes);
    Layout { bytes, segment_bytes }
}
