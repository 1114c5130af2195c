//! The name of an object, and its form in a word.
//!
//! | bits | what |
//! |---|---|
//! | 0–31 | the handle |
//! | 32–44 | the length in bytes, 1 to 4096; 4096 is an uncompressed page |
//! | 45–49 | the codec: 0–30 by number, or 31 for an eight-byte pattern that fills a page |

use units::PAGE_SIZE;
use zsmalloc::Handle;

const LENGTH_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = 0x1fff;
const CODEC_SHIFT: u32 = 45;
const CODEC_MASK: u64 = 31;
const FILL_CODEC: u8 = 31;
const _: () = assert!(zcomp::CODECS <= FILL_CODEC as usize);

/// The name of an object, with its relation to the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Object {
    /// The eight-byte pattern that fills the page.
    SameFilled(Handle),
    /// Compressed by one of the codecs.
    Compressed {
        /// The handle of the object.
        handle: Handle,
        /// The length of the object in bytes.
        length: usize,
        /// The number of the codec.
        codec: u8,
    },
    /// The uncompressed page, because it did not shrink.
    Huge(Handle),
}

impl Object {
    /// Bits of [`Object::word`]; the user of the word has the bits above.
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

    /// The name of the object after it was moved to `to`.
    #[inline]
    #[must_use]
    pub const fn moved_to(self, to: Handle) -> Object {
        match self {
            Object::SameFilled(_) => Object::SameFilled(to),
            Object::Huge(_) => Object::Huge(to),
            Object::Compressed { length, codec, .. } => {
                Object::Compressed { handle: to, length, codec }
            }
        }
    }

    /// The length of the object in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Object::SameFilled(_) => size_of::<u64>(),
            Object::Compressed { length, .. } => length,
            Object::Huge(_) => PAGE_SIZE,
        }
    }

    /// The object in the lower bits of a word.
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

    /// The object from the lower bits of a word that may be damaged; `None` if no object has such a
    /// word.
    #[must_use]
    pub const fn checked_from_word(word: u64) -> Option<Object> {
        let length = (word >> LENGTH_SHIFT & LENGTH_MASK) as usize;
        let codec = (word >> CODEC_SHIFT & CODEC_MASK) as u8;
        let object = Object::from_word(word);
        let right = match object {
            Object::SameFilled(_) => length == size_of::<u64>(),
            Object::Huge(_) => codec == 0,
            Object::Compressed { .. } => {
                length > 0 && length < PAGE_SIZE && (codec as usize) < zcomp::CODECS
            }
        };
        if right { Some(object) } else { None }
    }

    /// The object from the lower bits of a word.
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
