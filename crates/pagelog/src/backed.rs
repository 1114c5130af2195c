//! Where a page is on a backing device, and what it is there.
//!
//! | bits of a word | what |
//! |---|---|
//! | 0–31 | where it is |
//! | 32–44 | its bytes, 1 to 4096; 4096 is an uncompressed page |
//! | 45–49 | the codec of a compressed page, by number |

use segments::{Place, stored};
use units::PAGE_SIZE;

const LENGTH_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = 0x1fff;
const CODEC_SHIFT: u32 = 45;
const CODEC_MASK: u64 = 31;

/// Where an object is on a backing device. Only the device that gave it knows what it says: a place
/// of the log, or the block of a device with a page in each block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StoredAt(u32);

impl StoredAt {
    pub(crate) const fn in_block(block: u32) -> StoredAt {
        StoredAt(block)
    }

    pub(crate) const fn block(self) -> u32 {
        self.0
    }

    pub(crate) fn in_log(place: Place) -> StoredAt {
        StoredAt(place.word())
    }

    pub(crate) fn place(self) -> Place {
        Place::from_word(self.0)
    }
}

/// How a page is written: compressed or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coded {
    /// The bytes of the compressed page; 4096 for an uncompressed page.
    pub length: u16,
    /// The codec of a compressed page, by number.
    pub codec: u8,
    /// The page did not shrink when it was stored.
    pub huge: bool,
}

impl Coded {
    /// An uncompressed page, which may shrink.
    pub const NOT: Coded = Coded { length: PAGE_SIZE as u16, codec: 0, huge: false };

    /// Whether the page is compressed.
    #[must_use]
    pub const fn is_compressed(self) -> bool {
        (self.length as usize) < PAGE_SIZE
    }
}

/// The place and form of a written-back page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backed {
    /// Its place.
    pub at: StoredAt,
    /// Its form.
    pub form: Coded,
}

impl Backed {
    /// Bits of [`Backed::word`]; the user of the word has the bits above.
    pub const BITS: u32 = 50;

    /// All but `huge`, in the lower bits of a word.
    #[must_use]
    pub const fn word(self) -> u64 {
        let Coded { length, codec, .. } = self.form;
        debug_assert!(length as usize <= PAGE_SIZE && codec as u64 <= CODEC_MASK);
        self.at.0 as u64 | (length as u64) << LENGTH_SHIFT | (codec as u64) << CODEC_SHIFT
    }

    /// What the lower bits of a word say. It is not huge.
    #[must_use]
    pub const fn from_word(word: u64) -> Backed {
        let length = (word >> LENGTH_SHIFT & LENGTH_MASK) as u16;
        let codec = (word >> CODEC_SHIFT & CODEC_MASK) as u8;
        Backed { at: StoredAt(word as u32), form: Coded { length, codec, huge: false } }
    }

    /// The bytes that it takes in a log, with its header.
    #[must_use]
    pub fn log_bytes(&self) -> u32 {
        stored(self.form.length)
    }
}
