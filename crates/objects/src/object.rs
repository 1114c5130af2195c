//! What is known of an object, and the word it is kept in.
//!
//! | bits | what |
//! |---|---|
//! | 0–31 | the handle |
//! | 32–44 | the length in bytes, 1 to 4096; 4096 is a page as it is |
//! | 45–49 | the codec: 0–30 by number, or 31 for eight bytes that fill a page |

use units::PAGE_SIZE;
use zsmalloc::Handle;

const LENGTH_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = 0x1fff;
const CODEC_SHIFT: u32 = 45;
const CODEC_MASK: u64 = 31;
const FILL_CODEC: u8 = 31;
const _: () = assert!(zcomp::CODECS <= FILL_CODEC as usize);

/// The name of an object, and what it is of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// Eight bytes, which the page is over and over.
    SameFilled(Handle),
    /// Compressed by one of the codecs.
    Compressed {
        /// The object.
        handle: Handle,
        /// Its length in bytes.
        length: usize,
        /// Which of the codecs, by number.
        codec: u8,
    },
    /// The page as it is, because it would not shrink.
    Huge(Handle),
}

impl Object {
    /// Bits of [`Object::word`]; those above are the user's.
    pub const BITS: u32 = 50;

    /// The object's handle.
    #[inline]
    #[must_use]
    pub const fn handle(self) -> Handle {
        match self {
            Object::SameFilled(handle)
            | Object::Huge(handle)
            | Object::Compressed { handle, .. } => handle,
        }
    }

    /// Its length in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Object::SameFilled(_) => size_of::<u64>(),
            Object::Compressed { length, .. } => length,
            Object::Huge(_) => PAGE_SIZE,
        }
    }

    /// In the lower bits of a word.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        let codec = match self {
            Object::SameFilled(_) => FILL_CODEC,
            Object::Compressed { length, codec, .. } => {
                debug_assert!(length > 0 && length < PAGE_SIZE && (codec as usize) < zcomp::CODECS);
                codec
            }
            Object::Huge(_) => 0,
        };
        let length = (self.bytes() as u64) << LENGTH_SHIFT;
        self.handle().get() as u64 | length | (codec as u64) << CODEC_SHIFT
    }

    /// Out of the lower bits of a word.
    #[inline]
    #[must_use]
    pub const fn from_word(word: u64) -> Object {
        let handle = Handle::from_raw(word as u32);
        let length = (word >> LENGTH_SHIFT & LENGTH_MASK) as usize;
        let codec = (word >> CODEC_SHIFT & CODEC_MASK) as u8;
        if codec == FILL_CODEC {
            Object::SameFilled(handle)
        } else if length == PAGE_SIZE {
            Object::Huge(handle)
        } else {
            Object::Compressed { handle, length, codec }
        }
    }
}
