//! The record of a device, in memory that outlives the process: what the slots do not say.
//!
//! | word | what |
//! |---|---|
//! | 0 | the letters `rampdisk` |
//! | 1 | the layout of this record and of the device's tables |
//! | 2 | the size of the device in bytes; 0 before it was ever ready |
//! | 3 | the slots of the table |
//! | 4 | 1 if the times of last use are kept |
//! | 5–8 | for each priority the number of its codec plus one, or 0 |
//! | 16 … | a part of 1 MiB and 128 bytes for each codec number: see [`codecs`] |
//!
//! A device that was being made has size 0, and nothing of it is recovered. What a word says holds
//! as soon as it is written, and each word is written before something depends on it.

mod codecs;

use alloc::{format, string::String};

use objects::Words;
use pagealloc::MemoryProvider;
#[cfg(killed)]
use sync::atomic::killed;
use zcomp::{Chosen, CodecError, PRIORITIES, Register};

use self::codecs::KeptCodec;

/// The newest layout of a device in memory that outlives the process: its backing device holds a
/// log. Without one a device has layout 4 from its first shared object on, and [`OLDEST_LAYOUT`]
/// before.
pub const LAYOUT: u32 = WITH_LOG;
/// The layout of a device whose backing device holds a log.
const WITH_LOG: u32 = 5;
/// The layout of a device whose slots may name shared objects.
const WITH_SHARED_OBJECTS: u32 = 4;
/// The oldest layout that this program reads. In 1 and 2 the chains of zspages were shorter.
pub const OLDEST_LAYOUT: u32 = 3;
const MAGIC: u64 = u64::from_ne_bytes(*b"rampdisk");

const MAGIC_AT: usize = 0;
const LAYOUT_AT: usize = 1;
const BYTES_AT: usize = 2;
const SLOTS_AT: usize = 3;
const TIMES_AT: usize = 4;
const CURRENT_AT: usize = 5;
const _: () = assert!(CURRENT_AT + PRIORITIES <= codecs::FIRST);

/// The record of a device. One thread at a time writes it.
pub(crate) struct Record {
    words: Words,
}

impl Record {
    /// Makes the record of a new device.
    ///
    /// # Errors
    /// Says that there is no memory, or that the memory has contents.
    pub(crate) fn create(provider: &dyn MemoryProvider, times: bool) -> Result<Record, String> {
        let record = Record::map(provider)?;
        if record.words.get(MAGIC_AT) != 0 {
            return Err("the memory for its record has contents".into());
        }
        record.words.set(LAYOUT_AT, OLDEST_LAYOUT.into());
        record.words.set(TIMES_AT, u64::from(times));
        record.words.set(MAGIC_AT, MAGIC);
        Ok(record)
    }

    /// Opens the record that another process left.
    ///
    /// # Errors
    /// Says that there is no memory, or why it is no record that this program can read.
    pub(crate) fn open(provider: &dyn MemoryProvider) -> Result<Record, String> {
        let record = Record::map(provider)?;
        if record.words.get(MAGIC_AT) != MAGIC {
            return Err("its record is none (K5)".into());
        }
        match record.words.get(LAYOUT_AT) {
            layout if (OLDEST_LAYOUT.into()..=LAYOUT.into()).contains(&layout) => Ok(record),
            other => Err(format!(
                "its record has layout {other}; this program reads layouts {OLDEST_LAYOUT} to \
                 {LAYOUT} (K5)"
            )),
        }
    }

    /// Notes that slots may name shared objects from now on: an older program must not read them.
    pub(crate) fn has_shared_objects(&self) {
        if self.words.get(LAYOUT_AT) < u64::from(WITH_SHARED_OBJECTS) {
            self.words.set(LAYOUT_AT, WITH_SHARED_OBJECTS.into());
        }
    }

    /// Notes that the backing device holds a log.
    pub(crate) fn has_log(&self) {
        self.words.set(LAYOUT_AT, WITH_LOG.into());
    }

    /// The layout that it has now.
    pub(crate) fn layout(&self) -> u32 {
        self.words.get(LAYOUT_AT) as u32
    }

    fn map(provider: &dyn MemoryProvider) -> Result<Record, String> {
        let words = Words::new(provider, codecs::END);
        Ok(Record { words: words.map_err(|error| format!("its record: {error}"))? })
    }

    /// The size of the device in bytes; 0 before it was ever ready.
    pub(crate) fn bytes(&self) -> u64 {
        self.words.get(BYTES_AT)
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        #[cfg(killed)]
        if self.bytes() != 0 && killed::has(killed::Flaw::ForgetsSizes) {
            return;
        }
        self.words.set(BYTES_AT, bytes);
    }

    pub(crate) fn set_slots(&self, slots: usize) {
        self.words.set(SLOTS_AT, slots as u64);
    }

    /// The slots of its table.
    pub(crate) fn slots(&self) -> u64 {
        self.words.get(SLOTS_AT)
    }

    /// Whether times of last use are kept.
    pub(crate) fn times(&self) -> bool {
        self.words.get(TIMES_AT) != 0
    }

    /// The number of the codec of a priority.
    pub(crate) fn current(&self, priority: usize) -> Option<u8> {
        u8::try_from(self.words.get(CURRENT_AT + priority).checked_sub(1)?).ok()
    }

    /// The codec of a number, if it has one.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub(crate) fn codec(&self, number: u8) -> Result<Option<KeptCodec>, String> {
        codecs::read(&self.words, number)
    }
}

impl Register for Record {
    fn judge(&self, chosen: &Chosen) -> Result<(), CodecError> {
        codecs::judge(chosen)
    }

    fn keep(&self, number: u8, priority: u8, chosen: &Chosen) {
        #[cfg(killed)]
        if killed::has(killed::Flaw::ForgetsCodecs) {
            return;
        }
        codecs::write(&self.words, number, priority, chosen);
    }

    fn choose(&self, priority: u8, number: u8) {
        self.words.set(CURRENT_AT + usize::from(priority), u64::from(number) + 1);
    }
}
