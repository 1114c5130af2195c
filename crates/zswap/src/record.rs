//! The record of a cache: what its indexes and entries do not say. It is of use if it is in memory
//! that outlives the process.
//!
//! | word | what |
//! |---|---|
//! | 0, 1 | the letters `rampswap`, and the layout: see [`objects::Record`] |
//! | 2 | the most entries |
//! | 3 | the number of the codec of new objects plus one |
//! | 4 | the number of the codec of recompressed objects plus one; 0 if there is none |
//! | 8 … | 4 words for each swap type |
//! | 136 … | 8 words for each codec number |
//! | 384 … | 132 words for each memcg |
//!
//! Of a swap type: its pages (0 if it is off), how often it came on, its memcg, and a checksum of
//! these. Of a memcg: a checksum of number and name (0 for none), the limit, whether its pages may
//! go to a device, the bytes of the name, the name.
//!
//! A checksum is written last, that of an area before its pages.

use alloc::{format, string::String};
use core::ops::Deref;

use objects::{Form, NAMED_CODEC_WORDS, sum, words};
use pagealloc::MemoryProvider;
use zcomp::CODECS;

use crate::{MAX_TYPES, SwapType};

/// The most memcgs at once.
pub const MAX_MEMCGS: usize = 64;

/// The layout of a cache from its first pack on. Before, it has [`OLDEST_LAYOUT`].
pub const LAYOUT: u32 = 3;
/// The oldest layout that this program reads. In 1 the chains of zspages were shorter.
pub const OLDEST_LAYOUT: u32 = 2;

const ENTRIES_AT: usize = 2;
const CURRENT_AT: usize = 3;

const AREAS: usize = 8;
const OF_AREA: usize = 4;
const AREA_PAGES: usize = 0;
const AREA_GENERATION: usize = 1;
const AREA_MEMCG: usize = 2;
const AREA_SUM: usize = 3;

const CODECS_AT: usize = AREAS + MAX_TYPES * OF_AREA;

const MEMCGS_AT: usize = CODECS_AT + CODECS * NAMED_CODEC_WORDS;
const OF_MEMCG: usize = 132;
const MEMCG_MAX: usize = 1;
const MEMCG_WRITEBACK: usize = 2;
const MEMCG_NAME: usize = 3;
/// The longest name of a memcg, in bytes.
pub(crate) const MEMCG_NAME_BYTES: usize = (OF_MEMCG - MEMCG_NAME - 1) * size_of::<u64>();
const _: () = assert!(MEMCGS_AT == 384);

static FORM: Form = Form {
    letters: *b"rampswap",
    layouts: OLDEST_LAYOUT..=LAYOUT,
    current: CURRENT_AT,
    codecs: CODECS_AT,
    parameters: false,
    words: MEMCGS_AT + MAX_MEMCGS * OF_MEMCG,
};

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
#[derive(Clone)]
pub(crate) struct Record(objects::Record);

impl Deref for Record {
    type Target = objects::Record;
    fn deref(&self) -> &objects::Record {
        &self.0
    }
}

impl Record {
    /// The record of a new cache of at most `entries` entries.
    ///
    /// # Errors
    /// Says that there is no memory, or that the memory has contents.
    pub(crate) fn create(provider: &dyn MemoryProvider, entries: u32) -> Result<Record, String> {
        let first = [(ENTRIES_AT, u64::from(entries))];
        objects::Record::create(provider, &FORM, &first).map(Record)
    }

    /// The record that another process left.
    ///
    /// # Errors
    /// Says that there is no memory, or why it is no record that this program can read.
    pub(crate) fn open(provider: &dyn MemoryProvider) -> Result<Record, String> {
        objects::Record::open(provider, &FORM).map(Record)
    }

    /// Notes that entries may have parts of packs from now on.
    pub(crate) fn has_packs(&self) {
        self.needs_layout(LAYOUT);
    }

    /// The most entries.
    pub(crate) fn entries(&self) -> u64 {
        self.get(ENTRIES_AT)
    }

    /// An area, if it is on.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub(crate) fn area(&self, swap: SwapType) -> Result<Option<KeptArea>, String> {
        let at = AREAS + swap.number() * OF_AREA;
        let kept = KeptArea {
            pages: self.get(at + AREA_PAGES),
            generation: self.get(at + AREA_GENERATION),
            memcg: u8::try_from(self.get(at + AREA_MEMCG)).unwrap_or(u8::MAX),
        };
        if kept.pages == 0 {
            Ok(None)
        } else if self.get(at + AREA_SUM) != kept.sum(swap) {
            Err(format!("what was kept of swap area {swap} is damaged"))
        } else {
            Ok(Some(kept))
        }
    }

    /// The number of the next time that an area comes on: no memory of an earlier time has its
    /// name.
    pub(crate) fn next_generation(&self, swap: SwapType) -> u64 {
        let at = AREAS + swap.number() * OF_AREA + AREA_GENERATION;
        let generation = self.get(at).wrapping_add(1);
        self.set(at, generation);
        generation
    }

    /// Keeps that an area is on. Its index is there.
    pub(crate) fn set_on(&self, swap: SwapType, pages: u64, memcg: u8) {
        let at = AREAS + swap.number() * OF_AREA;
        let kept = KeptArea { pages, generation: self.get(at + AREA_GENERATION), memcg };
        self.set(at + AREA_MEMCG, u64::from(memcg));
        self.set(at + AREA_SUM, kept.sum(swap));
        self.set(at + AREA_PAGES, pages);
    }

    /// Keeps that an area is off. Nothing is left of its pages.
    pub(crate) fn set_off(&self, swap: SwapType) {
        self.set(AREAS + swap.number() * OF_AREA + AREA_PAGES, 0);
    }

    /// The memcg of a number, if there is one.
    ///
    /// # Errors
    /// Says that what was kept is damaged.
    pub(crate) fn memcg(&self, number: u8) -> Result<Option<KeptMemcg>, String> {
        let at = MEMCGS_AT + usize::from(number) * OF_MEMCG;
        let kept = self.get(at);
        if kept == 0 {
            return Ok(None);
        }
        let damaged = || format!("what was kept of memcg {number} is damaged");
        let name = self.bytes(at + MEMCG_NAME, MEMCG_NAME_BYTES).ok_or_else(damaged)?;
        if sum_of(number, &name) != kept {
            return Err(damaged());
        }
        Ok(Some(KeptMemcg {
            name: String::from_utf8(name).map_err(|_| damaged())?,
            max: self.get(at + MEMCG_MAX),
            writeback: self.get(at + MEMCG_WRITEBACK) != 0,
        }))
    }

    /// Keeps a memcg, whose name is short enough, before it has a page.
    pub(crate) fn set_memcg(&self, number: u8, memcg: &KeptMemcg) {
        let (at, name) = (MEMCGS_AT + usize::from(number) * OF_MEMCG, memcg.name.as_bytes());
        self.set(at, 0);
        self.set_limit(number, memcg.max);
        self.set_writeback(number, memcg.writeback);
        self.set_bytes(at + MEMCG_NAME, name);
        self.set(at, sum_of(number, name));
    }

    /// Keeps that there is no memcg of this number.
    pub(crate) fn remove_memcg(&self, number: u8) {
        self.set(MEMCGS_AT + usize::from(number) * OF_MEMCG, 0);
    }

    /// Keeps the limit of a memcg.
    pub(crate) fn set_limit(&self, number: u8, max: u64) {
        self.set(MEMCGS_AT + usize::from(number) * OF_MEMCG + MEMCG_MAX, max);
    }

    /// Keeps whether the pages of a memcg may go to a device.
    pub(crate) fn set_writeback(&self, number: u8, allowed: bool) {
        let at = MEMCGS_AT + usize::from(number) * OF_MEMCG + MEMCG_WRITEBACK;
        self.set(at, u64::from(allowed));
    }
}

fn sum_of(number: u8, name: &[u8]) -> u64 {
    sum([u64::from(number), name.len() as u64].into_iter().chain(words(name)))
}
