//! What another process finds of the windows of clones.
//!
//! An entry has four words: the number of the clone, the first slot of its window, the slots of the
//! window, and the bytes of the clone. Entries that were used are at the beginning of the table.
//!
//! # Invariants
//! * The bytes are 0 while no device has the window: while a clone is made, and while it is given
//!   up. They are the commit point of both, and are written after the other words.
//! * What is in slots behind the origin and in no window with bytes is nobody's: a process was
//!   making a clone there, or giving it up.

use alloc::vec::Vec;
use core::ops::Range;

use pagealloc::{LazyTable, MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};

/// A window begins at a multiple of this: no memory of the slot table has slots of two devices, and
/// no word of its marks.
pub(super) const ALIGNED: usize = 512 * 64;

const ID: usize = 0;
const FIRST: usize = 1;
const PAGES: usize = 2;
const BYTES: usize = 3;

/// The table. One thread writes it at a time.
pub(super) struct KeptWindows(LazyTable<[AtomicU64; 4]>);

/// A window with a device that another process left.
pub(crate) struct LeftWindow {
    pub(super) entry: usize,
    /// The number of the clone.
    pub(crate) id: u32,
    pub(crate) pages: Range<usize>,
    /// The bytes of the clone.
    pub(crate) bytes: u64,
}

impl KeptWindows {
    /// A table with room for all windows that can be.
    pub(super) fn new(memory: &dyn MemoryProvider) -> Result<KeptWindows, NoMemory> {
        LazyTable::new(memory, pagelog::MOST_PAGES as usize / ALIGNED).map(KeptWindows)
    }

    fn get(&self, entry: usize, word: usize) -> u64 {
        // Acquire pairs with the Release in `set_bytes`: the bytes are of the other words.
        self.0.get(entry)[word].load(Ordering::Acquire)
    }

    fn bytes(&self, entry: usize) -> u64 {
        self.get(entry, BYTES)
    }

    pub(super) fn set_bytes(&self, entry: usize, bytes: u64) {
        // Release pairs with the Acquire in `get`: the other words come first.
        self.0.get(entry)[BYTES].store(bytes, Ordering::Release);
    }

    /// Enters the window of a device, and returns its entry.
    pub(super) fn add(&self, id: u32, pages: &Range<usize>, bytes: u64) -> Option<usize> {
        let entry = (0..self.0.len()).find(|entry| self.bytes(*entry) == 0)?;
        let words = [(ID, u64::from(id)), (FIRST, pages.start as u64), (PAGES, pages.len() as u64)];
        for (word, value) in words {
            self.0.get(entry)[word].store(value, Ordering::Relaxed);
        }
        self.set_bytes(entry, bytes);
        Some(entry)
    }

    /// The windows with devices. Any words may be there.
    pub(super) fn left(&self) -> Vec<LeftWindow> {
        let used = (0..self.0.len()).take_while(|entry| self.get(*entry, FIRST) != 0);
        let left = |entry| {
            let first = self.get(entry, FIRST) as usize;
            LeftWindow {
                entry,
                id: self.get(entry, ID) as u32,
                pages: first..first.saturating_add(self.get(entry, PAGES) as usize),
                bytes: self.bytes(entry),
            }
        };
        used.map(left).filter(|window| window.bytes != 0).collect()
    }
}

impl LeftWindow {
    /// Whether there can be such a window, between slots `from` and `end`.
    pub(crate) fn can_be(&self, from: usize, end: usize) -> bool {
        let (page, pages) = (units::PAGE_SIZE as u64, self.pages.len() as u64);
        let lies = self.pages.start.is_multiple_of(ALIGNED) && self.pages.start >= from;
        lies && self.pages.end <= end
            && self.bytes.is_multiple_of(page)
            && self.bytes / page <= pages
    }
}
