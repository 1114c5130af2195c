//! What a store remembers of its own work.

use alloc::{sync::Arc, vec::Vec};

use sync::Mutex;
use sync::atomic::AtomicU64;
use zcomp::Compressor;

use crate::index::END;
use crate::scratch::{GROUP, Making, SMALL};
use crate::word::{MAX_MEMBERS, Word};
use crate::{MAX_KEY, NoStore, Recompress, head::HEAD_BYTES};

/// The hands of the clock: the next bucket, and the next group.
#[derive(Default)]
pub(crate) struct Hands {
    pub(crate) bucket: AtomicU64,
    pub(crate) group: AtomicU64,
    /// How far they have come in all, in parts of a round.
    pub(crate) by_bucket: AtomicU64,
    pub(crate) by_group: AtomicU64,
}

/// Where upkeep goes on.
#[derive(Default)]
pub(crate) struct Swept {
    /// A place of the index.
    pub(crate) place: u64,
    pub(crate) group: u32,
    pub(crate) sparse: u32,
}

/// How values that are not read are compressed once more.
pub(crate) struct Cold {
    pub(crate) codec: Arc<dyn Compressor>,
    pub(crate) after: u32,
    pub(crate) pass: Mutex<ColdPass>,
    /// Values and groups that were compressed once more, and the bytes that this has saved.
    pub(crate) recompressed: AtomicU64,
    pub(crate) saved: AtomicU64,
}

/// A pass over all values that looks for those that are not read.
pub(crate) struct ColdPass {
    pub(crate) making: Making,
    /// When it began; `None` before the first.
    pub(crate) began: Option<u32>,
    /// A store of the family, a place of its index, and a group.
    pub(crate) store: usize,
    pub(crate) place: u64,
    pub(crate) group: u32,
    /// A value.
    pub(crate) value: Vec<u8>,
}

impl Cold {
    pub(crate) fn new(options: Recompress, unit: usize) -> Result<Cold, NoStore> {
        let Recompress { codec, after } = options;
        let making = Making::new(&*codec, unit)?;
        // Where the last pass ended, so that one begins.
        let (place, group) = (END, u32::MAX);
        let pass = ColdPass { making, began: None, store: 0, place, group, value: Vec::new() };
        let (recompressed, saved) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Cold { codec, after, pass: Mutex::new(pass), recompressed, saved })
    }
}

/// The words of a CPU that wait for a group.
pub(crate) struct Pending {
    words: [u64; MAX_MEMBERS],
    count: usize,
    /// Bytes of their heads.
    bytes: usize,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { words: [0; MAX_MEMBERS], count: 0, bytes: 0 }
    }
}

impl Pending {
    /// Adds the word of a value with so many bytes of data. Returns whether there are enough for a
    /// group now: the next might not fit. They are to be taken then.
    pub(crate) fn add(&mut self, word: Word, data: usize) -> bool {
        self.words[self.count] = word.get();
        self.count += 1;
        self.bytes += HEAD_BYTES + data;
        self.bytes > GROUP - HEAD_BYTES - MAX_KEY - SMALL || self.count == MAX_MEMBERS
    }

    /// The words.
    pub(crate) fn words(&self) -> impl Iterator<Item = Word> {
        self.words[..self.count].iter().filter_map(|word| Word::from_raw(*word))
    }
}

/// What becomes of the members of a group that is taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Apart {
    /// All stay.
    Keep,
    /// Those that were not read since the last time go, if that is half of the group.
    Evict,
    /// All stay as they are, but those whose lives have ended.
    Expire,
    /// All go, without a word to the user.
    Clear,
}
