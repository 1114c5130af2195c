//! A slot: all that is known of a page of the disk, in one word.
//!
//! | bits | what |
//! |---|---|
//! | 0–31 | the object's handle, or the fill pattern |
//! | 32–44 | the object's length in bytes, 1 to 4096; 4096 is a page stored as it is |
//! | 45–46 | kind: 0 empty, 1 filled, 2 stored (3 is kept for written-back pages) |
//! | 47–49 | the codec: a priority 0–3, or 7 for an object that is an 8-byte fill pattern |
//! | 50 | claimed: somebody prepares a replacement from the present contents |
//! | 51–61 | free |
//! | 62–63 | the slot table's own: the lock and its waiters |
//!
//! Transitions are functions on the word; the table only swaps words.

use units::PAGE_SIZE;
use zsmalloc::Handle;

const LENGTH_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = 0x1fff;
const KIND_SHIFT: u32 = 45;
const KIND_MASK: u64 = 3;
const CODEC_SHIFT: u32 = 47;
const CODEC_MASK: u64 = 7;
const CLAIMED: u64 = 1 << 50;
const FILLED: u64 = 1;
const STORED: u64 = 2;
const FILL_CODEC: u8 = 7;
/// Bits a slot has for itself.
pub(crate) const SLOT_BITS: u32 = 62;

/// The word. The default is an empty slot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Slot(u64);

/// What a slot says of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Never written, or discarded: reads as zeroes.
    Empty,
    /// The same eight bytes over and over, which are in the slot.
    Filled(u64),
    /// The same eight bytes over and over, which are an object.
    FilledObject(Handle),
    /// Compressed by the codec with this priority.
    Compressed {
        /// The object.
        handle: Handle,
        /// Its length in bytes.
        length: usize,
        /// Which of the disk's codecs.
        codec: u8,
    },
    /// As it is, because it would not shrink.
    Raw(Handle),
}

impl Slot {
    /// An empty slot.
    pub const EMPTY: Slot = Slot(0);

    /// A slot for a page filled with `pattern`, if the pattern fits: its halves are the same.
    #[inline]
    #[must_use]
    pub const fn filled(pattern: u64) -> Option<Slot> {
        let low = pattern as u32;
        if low == (pattern >> 32) as u32 {
            Some(Slot(low as u64 | FILLED << KIND_SHIFT))
        } else {
            None
        }
    }

    /// A slot for a page filled with the eight bytes of an object.
    #[inline]
    #[must_use]
    pub const fn filled_object(handle: Handle) -> Slot {
        Slot::stored(handle, 8, FILL_CODEC)
    }

    /// A slot for a compressed page; a length of 4096 is a page as it is.
    #[inline]
    #[must_use]
    pub const fn compressed(handle: Handle, length: usize, codec: u8) -> Slot {
        debug_assert!(length > 0 && length <= PAGE_SIZE && codec < 4);
        Slot::stored(handle, length, codec)
    }

    /// A slot for a page stored as it is.
    #[inline]
    #[must_use]
    pub const fn raw(handle: Handle) -> Slot {
        Slot::stored(handle, PAGE_SIZE, 0)
    }

    const fn stored(handle: Handle, length: usize, codec: u8) -> Slot {
        let word = handle.get() as u64
            | (length as u64) << LENGTH_SHIFT
            | STORED << KIND_SHIFT
            | (codec as u64) << CODEC_SHIFT;
        Slot(word)
    }

    /// What it says.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT & KIND_MASK {
            STORED => {
                let handle = Handle::from_raw(self.0 as u32);
                let length = (self.0 >> LENGTH_SHIFT & LENGTH_MASK) as usize;
                let codec = (self.0 >> CODEC_SHIFT & CODEC_MASK) as u8;
                if codec == FILL_CODEC {
                    Kind::FilledObject(handle)
                } else if length == PAGE_SIZE {
                    Kind::Raw(handle)
                } else {
                    Kind::Compressed { handle, length, codec }
                }
            }
            FILLED => {
                let half = self.0 as u32 as u64;
                Kind::Filled(half << 32 | half)
            }
            _ => Kind::Empty,
        }
    }

    /// Is there no page?
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 & !CLAIMED == 0
    }

    /// Is somebody preparing a replacement from the present contents? Any store takes the claim
    /// away, and the replacement is then not installed.
    #[inline]
    #[must_use]
    pub const fn is_claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }

    /// The same slot, claimed.
    #[inline]
    #[must_use]
    pub const fn claimed(self) -> Slot {
        Slot(self.0 | CLAIMED)
    }

    /// The same slot, not claimed.
    #[inline]
    #[must_use]
    pub const fn unclaimed(self) -> Slot {
        Slot(self.0 & !CLAIMED)
    }

    /// The word, for a table.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// A slot from a table's word.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Slot {
        Slot(word)
    }
}
