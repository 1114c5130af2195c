//! The record of a cache: what its indexes and entries do not say. It is of use if it is in memory
//! that outlives the process.
//!
//! | word | what |
//! |---|---|
//! | 0 | the letters `rampswap` |
//! | 1 | the layout of this record and of the tables |
//! | 2 | the most entries |
//! | 3 | the number of the codec of new objects plus one |
//! | 4 | the number of the codec of recompressed objects plus one; 0 if there is none |
//! | 8 … | 4 words for each swap type |
//! | 136 … | 8 words for each codec number |
//! | 384 … | 132 words for each memcg |
//!
//! Of a swap type: its pages (0 if it is off), how often it came on, its memcg, and a checksum of
//! these. Of a codec: a checksum (0 for none), the bytes of the name, the name. Of a memcg: a
//! checksum of number and name (0 for none), the limit, whether its pages may go to a device, the
//! bytes of the name, the name.
//!
//! What a word says holds as soon as it is written, and each word is written before something
//! depends on it. A checksum is written last, that of an area before its pages.

use alloc::{format, string::String};

use objects::{Words, sum, words};
use pagealloc::{MemoryProvider, NoMemory};
#[cfg(killed)]
use sync::atomic::killed;
use zcomp::{CODECS, Chosen, CodecError, Params, Register};

use crate::{MAX_TYPES, SwapType};

/// The most memcgs at once.
pub const MAX_MEMCGS: usize = 64;

/// The priority of the codec of recompressed objects.
pub(crate) const WARM_PRIORITY: u8 = 1;

/// The layout that this program writes, and the only one that it reads. In 1 the chains of zspages
/// were shorter.
pub const LAYOUT: u64 = 2;
const MAGIC: u64 = u64::from_ne_bytes(*b"rampswap");

const MAGIC_AT: usize = 0;
const LAYOUT_AT: usize = 1;
const ENTRIES_AT: usize = 2;
const CURRENT_AT: usize = 3;
const WARM_AT: usize = 4;

const AREAS: usize = 8;
const OF_AREA: usize = 4;
const AREA_PAGES: usize = 0;
const AREA_GENERATION: usize = 1;
const AREA_MEMCG: usize = 2;
const AREA_SUM: usize = 3;

const WORD: usize = size_of::<u64>();
const CODECS_AT: usize = AREAS + MAX_TYPES * OF_AREA;
const OF_CODEC: usize = 8;
const CODEC_NAME: usize = 2;
const CODEC_NAME_BYTES: usize = 32;

const MEMCGS_AT: usize = CODECS_AT + CODECS * OF_CODEC;
const OF_MEMCG: usize = 132;
const MEMCG_MAX: usize = 1;
const MEMCG_WRITEBACK: usize = 2;
const MEMCG_LENGTH: usize = 3;
const MEMCG_NAME: usize = 4;
/// The longest name of a memcg, in bytes.
pub(crate) const MEMCG_NAME_BYTES: usize = (OF_MEMCG - MEMCG_NAME) * WORD;

const END: usize = MEMCGS_AT + MAX_MEMCGS * OF_MEMCG;
const _: () = assert!(CODEC_NAME + CODEC_NAME_BYTES / WORD <= OF_CODEC && MEMCGS_AT == 384);

/// An area, as it was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptArea {
    pub(crate) pages: u64,
    pub(crate) generation: u64,
    pub(crate) memcg: u8,
}

impl KeptArea {
    fn sum(self, swap: SwapType) -> u64 {
        let number = swap.number() as u64;
        sum([number, self.pages, self.generation, u64::from(self.memcg)].into_iter())
    }
}

/// A memcg, as it was kept.
pub(crate) struct KeptMemcg {
    pub(crate) name: String,
    pub(crate) max: u64,
    pub(crate) writeback: bool,
}

/// The record of a cache. One thread at a time changes areas and memcgs, and one the codecs. The
/// limits of memcgs may be changed by any number of threads.
pub(crate) struct Record {
    words: Words,
}

impl Record {
    /// The record of a new cache of at most `entries` entries.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none.
    pub(crate) fn create(provider: &dyn MemoryProvider, entries: u32) -> Result<Record, NoMemory> {
        let words = Words::new(provider, END)?;
        words.set(LAYOUT_AT, LAYOUT);
        words.set(ENTRIES_AT, u64::from(entries));
        words.set(MAGIC_AT, MAGIC);
        Ok(Record { words })
    }

    /// The record that another process left.
    ///
    /// # Errors
    /// Says that there is no memory, or why it is no record that this program can read.
    pub(crate) fn open(provider: &dyn MemoryProvider) -> Result<Record, String> {
        let words = Words::new(provider, END).map_err(|error| format!("its record: {error}"))?;
        if words.get(MAGIC_AT) != MAGIC {
            return Err("its record is none".into());
        }
        match words.get(LAYOUT_AT) {
            LAYOUT => Ok(Record { words }),
            other => {
                Err(format!("its record has layout {other}; this program reads layout {LAYOUT}"))
            }
        }
    }

    /// The most entries.
    pub(crate) fn entries(&self) -> u64 {
        self.words.get(ENTRIES_AT)
    }

    /// An area, if it is on.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub(crate) fn area(&self, swap: SwapType) -> Result<Option<KeptArea>, String> {
        let at = AREAS + swap.number() * OF_AREA;
        let kept = KeptArea {
            pages: self.words.get(at + AREA_PAGES),
            generation: self.words.get(at + AREA_GENERATION),
            memcg: u8::try_from(self.words.get(at + AREA_MEMCG)).unwrap_or(u8::MAX),
        };
        if kept.pages == 0 {
            Ok(None)
        } else if self.words.get(at + AREA_SUM) != kept.sum(swap) {
            Err(format!("what was kept of swap area {swap} is damaged"))
        } else {
            Ok(Some(kept))
        }
    }

    /// The number of the next time that an area comes on: no memory of an earlier time has its
    /// name.
    pub(crate) fn next_generation(&self, swap: SwapType) -> u64 {
        let at = AREAS + swap.number() * OF_AREA + AREA_GENERATION;
        let generation = self.words.get(at).wrapping_add(1);
        self.words.set(at, generation);
        generation
    }

    /// Keeps that an area is on. Its index is there.
    pub(crate) fn set_on(&self, swap: SwapType, pages: u64, memcg: u8) {
        let at = AREAS + swap.number() * OF_AREA;
        let kept = KeptArea { pages, generation: self.words.get(at + AREA_GENERATION), memcg };
        self.words.set(at + AREA_MEMCG, u64::from(memcg));
        self.words.set(at + AREA_SUM, kept.sum(swap));
        self.words.set(at + AREA_PAGES, pages);
    }

    /// Keeps that an area is off. Nothing is left of its pages.
    pub(crate) fn set_off(&self, swap: SwapType) {
        self.words.set(AREAS + swap.number() * OF_AREA + AREA_PAGES, 0);
    }

    /// The memcg of a number, if there is one.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub(crate) fn memcg(&self, number: u8) -> Result<Option<KeptMemcg>, String> {
        let at = MEMCGS_AT + usize::from(number) * OF_MEMCG;
        let kept = self.words.get(at);
        if kept == 0 {
            return Ok(None);
        }
        let damaged = || format!("what was kept of memcg {number} is damaged");
        let length = usize::try_from(self.words.get(at + MEMCG_LENGTH)).unwrap_or(usize::MAX);
        if length > MEMCG_NAME_BYTES {
            return Err(damaged());
        }
        let name = self.words.bytes(at + MEMCG_NAME, length);
        if sum_of(number, &name) != kept {
            return Err(damaged());
        }
        Ok(Some(KeptMemcg {
            name: String::from_utf8(name).map_err(|_| damaged())?,
            max: self.words.get(at + MEMCG_MAX),
            writeback: self.words.get(at + MEMCG_WRITEBACK) != 0,
        }))
    }

    /// Keeps a memcg, whose name is short enough, before it has a page.
    pub(crate) fn set_memcg(&self, number: u8, memcg: &KeptMemcg) {
        let (at, name) = (MEMCGS_AT + usize::from(number) * OF_MEMCG, memcg.name.as_bytes());
        self.words.set(at, 0);
        self.set_limit(number, memcg.max);
        self.set_writeback(number, memcg.writeback);
        self.words.set(at + MEMCG_LENGTH, name.len() as u64);
        for (n, word) in words(name).enumerate() {
            self.words.set(at + MEMCG_NAME + n, word);
        }
        self.words.set(at, sum_of(number, name));
    }

    /// Keeps that there is no memcg of this number.
    pub(crate) fn remove_memcg(&self, number: u8) {
        self.words.set(MEMCGS_AT + usize::from(number) * OF_MEMCG, 0);
    }

    /// Keeps the limit of a memcg.
    pub(crate) fn set_limit(&self, number: u8, max: u64) {
        #[cfg(killed)]
        if killed::has(killed::Flaw::ForgetsLimits) {
            return;
        }
        self.words.set(MEMCGS_AT + usize::from(number) * OF_MEMCG + MEMCG_MAX, max);
    }

    /// Keeps whether the pages of a memcg may go to a device.
    pub(crate) fn set_writeback(&self, number: u8, allowed: bool) {
        let at = MEMCGS_AT + usize::from(number) * OF_MEMCG + MEMCG_WRITEBACK;
        self.words.set(at, u64::from(allowed));
    }

    /// The number of the codec of new objects.
    pub(crate) fn current_codec(&self) -> Option<u8> {
        u8::try_from(self.words.get(CURRENT_AT).checked_sub(1)?).ok()
    }

    /// The number of the codec of recompressed objects, if there is one.
    pub(crate) fn warm_codec(&self) -> Option<u8> {
        u8::try_from(self.words.get(WARM_AT).checked_sub(1)?).ok()
    }

    /// The name of the codec of a number, if it has one.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub(crate) fn codec(&self, number: u8) -> Result<Option<String>, String> {
        let at = CODECS_AT + usize::from(number) * OF_CODEC;
        let kept = self.words.get(at);
        if kept == 0 {
            return Ok(None);
        }
        let damaged = || format!("what was kept of codec {number} is damaged");
        let length = usize::try_from(self.words.get(at + 1)).unwrap_or(usize::MAX);
        if length > CODEC_NAME_BYTES {
            return Err(damaged());
        }
        let name = self.words.bytes(at + CODEC_NAME, length);
        if sum_of(number, &name) != kept {
            return Err(damaged());
        }
        String::from_utf8(name).map(Some).map_err(|_| damaged())
    }
}

fn sum_of(number: u8, name: &[u8]) -> u64 {
    sum([u64::from(number), name.len() as u64].into_iter().chain(words(name)))
}

/// Codecs of a cache have no parameters.
impl Register for Record {
    fn judge(&self, chosen: &Chosen) -> Result<(), CodecError> {
        let name = chosen.compressor.name();
        if chosen.params != Params::default() {
            return Err(CodecError(format!("the cache takes codec {name} without parameters")));
        }
        match name.len() {
            0..=CODEC_NAME_BYTES => Ok(()),
            bytes => Err(CodecError(format!("a name of {bytes} bytes is too long"))),
        }
    }

    fn keep(&self, number: u8, _: u8, chosen: &Chosen) {
        #[cfg(killed)]
        if killed::has(killed::Flaw::ForgetsCodecs) {
            return;
        }
        let (at, name) = (CODECS_AT + usize::from(number) * OF_CODEC, chosen.compressor.name());
        self.words.set(at, 0);
        self.words.set(at + 1, name.len() as u64);
        for (n, word) in words(name.as_bytes()).enumerate() {
            self.words.set(at + CODEC_NAME + n, word);
        }
        self.words.set(at, sum_of(number, name.as_bytes()));
    }

    fn choose(&self, priority: u8, number: u8) {
        let at = if priority == WARM_PRIORITY { WARM_AT } else { CURRENT_AT };
        self.words.set(at, u64::from(number) + 1);
    }
}
