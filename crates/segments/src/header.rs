//! The header before each object.
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | the key: the index of the page |
//! | 4–7 | bits 0–13: the length less one; 14–18: the codec; 19: zero; 20–31: the generation |
//! | 8–23 | the tag, which the caller makes and checks |
//!
//! Numbers are little-endian.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;
/// The longest object in bytes: a page that did not shrink.
pub const MOST_BYTES: usize = 4096;

const CODEC_SHIFT: u32 = 14;
const ZERO_BIT: u32 = 1 << 19;
const GENERATION_SHIFT: u32 = 20;
const MOST_GENERATION: u16 = 0xfff;

/// The index of a page on its disk.
pub type Key = u32;

/// The life of a segment, 1 to 4095: each life begins with the next one. What an earlier life left
/// behind is no object of this one. 0 is none, so that zeroes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Generation(u16);

impl Generation {
    /// The first life.
    pub const FIRST: Generation = Generation(1);

    /// Life `n`; `None` if it is 0 or above 4095.
    #[must_use]
    pub const fn new(n: u16) -> Option<Generation> {
        if n >= 1 && n <= MOST_GENERATION { Some(Generation(n)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The life after it. The first one follows the last.
    #[must_use]
    pub const fn next(self) -> Generation {
        if self.0 == MOST_GENERATION { Generation::FIRST } else { Generation(self.0 + 1) }
    }
}

/// What a segment says of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose object it is.
    pub key: Key,
    /// Bytes of the object, without the header: 1 to [`MOST_BYTES`].
    pub length: u16,
    /// The number of its codec, 0 to 31.
    pub codec: u8,
    /// The life of the segment.
    pub generation: Generation,
    /// A checksum or an authentication tag. This crate only carries it.
    pub tag: [u8; TAG_BYTES],
}

impl Header {
    /// The bytes of the header; `None` if the length or the codec is out of range.
    #[must_use]
    pub fn encode(&self) -> Option<[u8; HEADER_BYTES]> {
        if self.length == 0 || usize::from(self.length) > MOST_BYTES || self.codec > 31 {
            return None;
        }
        let word = u32::from(self.length - 1)
            | u32::from(self.codec) << CODEC_SHIFT
            | u32::from(self.generation.0) << GENERATION_SHIFT;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&self.tag);
        Some(bytes)
    }

    /// The header that `bytes` are; `None` if they are none.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let [k0, k1, k2, k3, w0, w1, w2, w3, tag @ ..] = *bytes;
        let word = u32::from_le_bytes([w0, w1, w2, w3]);
        let header = Header {
            key: u32::from_le_bytes([k0, k1, k2, k3]),
            length: (word & ((1 << CODEC_SHIFT) - 1)) as u16 + 1,
            codec: (word >> CODEC_SHIFT & 31) as u8,
            generation: Generation::new((word >> GENERATION_SHIFT) as u16)?,
            tag,
        };
        let fits = usize::from(header.length) <= MOST_BYTES && word & ZERO_BIT == 0;
        fits.then_some(header)
    }
}
