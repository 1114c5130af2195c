//! The record of a device, in memory that outlives the process: what the slots do not say.
//!
//! | word | what |
//! |---|---|
//! | 0, 1 | the letters `rampdisk`, and the layout: see [`objects::Record`] |
//! | 2 | the size of the device in bytes; 0 before it was ever ready |
//! | 3 | the slots of the table |
//! | 4 | 1 if the times of last use are kept |
//! | 5–8 | for each priority the number of its codec plus one, or 0 |
//! | 9 | what is left of the writeback limit plus one, or 0 from a program that did not keep it |
//! | 10, 11 | the first slot that was ever a clone's, and the one behind the last; 0 without any |
//! | 16 … | a part of 1 MiB and 128 bytes for each codec number |
//!
//! A device that was being made has size 0, and nothing of it is recovered.

use alloc::string::String;
use core::ops::{Deref, Range};

use objects::{CODEC_WORDS, Form};
use pagealloc::MemoryProvider;
use zcomp::{CODECS, PRIORITIES};

/// The newest layout of a device in memory that outlives the process: it has, or had, clones. One
/// whose backing device holds a log has layout 5; others have layout 4 from their first shared
/// object on, and [`OLDEST_LAYOUT`] before.
pub const LAYOUT: u32 = WITH_CLONES;
/// The layout of a device with clones.
const WITH_CLONES: u32 = 6;
/// The layout of a device whose backing device holds a log.
const WITH_LOG: u32 = 5;
/// The layout of a device whose slots may name shared objects.
pub(crate) const WITH_SHARED_OBJECTS: u32 = 4;
/// The oldest layout that this program reads. In 1 and 2 the chains of zspages were shorter.
pub const OLDEST_LAYOUT: u32 = 3;

const BYTES_AT: usize = 2;
const SLOTS_AT: usize = 3;
const TIMES_AT: usize = 4;
const CURRENT_AT: usize = 5;
const WRITEBACK_LEFT_AT: usize = CURRENT_AT + PRIORITIES;
const CODECS_AT: usize = 16;
const CLONES_FROM_AT: usize = WRITEBACK_LEFT_AT + 1;
const CLONES_END_AT: usize = CLONES_FROM_AT + 1;
const _: () = assert!(CLONES_END_AT < CODECS_AT);

static FORM: Form = Form {
    letters: *b"rampdisk",
    layouts: OLDEST_LAYOUT..=LAYOUT,
    current: CURRENT_AT,
    codecs: CODECS_AT,
    parameters: true,
    words: CODECS_AT + CODECS * CODEC_WORDS,
};

/// The record of a device. One thread at a time writes each word.
#[derive(Clone)]
pub(crate) struct Record(objects::Record);

impl Deref for Record {
    type Target = objects::Record;
    fn deref(&self) -> &objects::Record {
        &self.0
    }
}

impl Record {
    /// Makes the record of a new device.
    ///
    /// # Errors
    /// Says that there is no memory, or that the memory has contents.
    pub(crate) fn create(provider: &dyn MemoryProvider, times: bool) -> Result<Record, String> {
        let first = [(TIMES_AT, u64::from(times))];
        objects::Record::create(provider, &FORM, &first).map(Record)
    }

    /// Opens the record that another process left.
    ///
    /// # Errors
    /// Says that there is no memory, or why it is no record that this program can read.
    pub(crate) fn open(provider: &dyn MemoryProvider) -> Result<Record, String> {
        objects::Record::open(provider, &FORM).map(Record)
    }

    /// Notes that slots may name shared objects from now on.
    pub(crate) fn has_shared_objects(&self) {
        self.needs_layout(WITH_SHARED_OBJECTS);
    }

    /// Notes that the backing device holds a log.
    pub(crate) fn has_log(&self) {
        self.needs_layout(WITH_LOG);
    }

    /// Notes that clones may have these slots from now on.
    pub(crate) fn has_clones_at(&self, slots: &Range<usize>) {
        self.needs_layout(WITH_CLONES);
        let (before, from) = (self.clones_at(), slots.start as u64);
        self.set(CLONES_END_AT, (slots.end as u64).max(before.end as u64));
        let from = if before.is_empty() { from } else { from.min(before.start as u64) };
        self.set(CLONES_FROM_AT, from);
    }

    /// The slots that clones may have, or have had.
    pub(crate) fn clones_at(&self) -> Range<usize> {
        match self.get(CLONES_FROM_AT) as usize {
            0 => 0..0,
            from => from..self.get(CLONES_END_AT) as usize,
        }
    }

    /// The size of the device in bytes; 0 before it was ever ready.
    pub(crate) fn bytes(&self) -> u64 {
        self.get(BYTES_AT)
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.set(BYTES_AT, bytes);
    }

    pub(crate) fn set_slots(&self, slots: usize) {
        self.set(SLOTS_AT, slots as u64);
    }

    /// The slots of its table.
    pub(crate) fn slots(&self) -> u64 {
        self.get(SLOTS_AT)
    }

    /// Whether times of last use are kept.
    pub(crate) fn times(&self) -> bool {
        self.get(TIMES_AT) != 0
    }

    /// Keeps how many pages may still be written back.
    pub(crate) fn set_writeback_left(&self, pages: u64) {
        self.set(WRITEBACK_LEFT_AT, pages.saturating_add(1));
    }

    /// How many pages may still be written back, if that was kept.
    pub(crate) fn writeback_left(&self) -> Option<u64> {
        self.get(WRITEBACK_LEFT_AT).checked_sub(1)
    }
}
