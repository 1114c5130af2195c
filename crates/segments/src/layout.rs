//! How a device is divided, and places on it.

use core::fmt;

use crate::header::{HEADER_BYTES, MOST_BYTES};

/// Objects begin at multiples of this many bytes.
pub const UNIT_BYTES: u32 = 64;
/// A flush begins and ends at multiples of this many bytes: see
/// [`Segments::pad`](crate::Segments::pad).
pub const BLOCK_BYTES: u32 = 4096;
/// The most of a device that places can name: 256 GiB.
pub const MOST_DEVICE_BYTES: u64 = (u32::MAX as u64 + 1) * UNIT_BYTES as u64;
/// A segment open for new objects, one for survivors, and the reserve.
const LEAST_SEGMENTS: u32 = 3;

/// The bytes that an object of `length` bytes takes on the device: with its header, in whole units.
#[must_use]
pub const fn stored(length: u16) -> u32 {
    (HEADER_BYTES as u32 + length as u32).next_multiple_of(UNIT_BYTES)
}

/// Where the header of an object begins. It stays the same as long as the object is not copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(u32);

impl Place {
    /// The place of a word that a slot kept. Any word is a place.
    #[must_use]
    pub const fn from_word(word: u32) -> Place {
        Place(word)
    }

    /// The word for a slot.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0
    }

    /// The first byte of the header on the device.
    #[must_use]
    pub const fn byte(self) -> u64 {
        self.0 as u64 * UNIT_BYTES as u64
    }

    /// The place at a byte of the device; `None` between units or too far.
    #[must_use]
    pub const fn at(byte: u64) -> Option<Place> {
        if byte >= MOST_DEVICE_BYTES || !byte.is_multiple_of(UNIT_BYTES as u64) {
            return None;
        }
        Some(Place((byte / UNIT_BYTES as u64) as u32))
    }

    /// The one I/O that reads the header and an object of `length` bytes on a device with blocks of
    /// `block` bytes, a power of two.
    #[must_use]
    pub const fn span(self, length: u16, block: u32) -> Span {
        debug_assert!(block.is_power_of_two());
        let mask = block as u64 - 1;
        let end = self.byte() + HEADER_BYTES as u64 + length as u64;
        let start = self.byte() & !mask;
        let bytes = ((end + mask) & !mask) - start;
        Span { start, bytes: bytes as u32, skip: (self.byte() - start) as u32 }
    }
}

/// Whole blocks of a device with an object in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// How many bytes.
    pub bytes: u32,
    /// Bytes before the header.
    pub skip: u32,
}

/// Survivors are flushed when there are this many bytes of them, or no more.
const FLUSH_BYTES: u32 = 1 << 20;

/// How a device is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of the device. A rest that is no whole segment is not used.
    pub bytes: u64,
    /// Bytes of a segment: 1, 2 or 4 MiB.
    pub segment_bytes: u32,
}

impl Layout {
    /// The number of whole segments.
    ///
    /// # Errors
    /// The segments are of a size that is not allowed, or the device is too small or too large.
    pub fn segments(&self) -> Result<u32, LayoutError> {
        if !(self.segment_bytes.is_power_of_two()
            && (1 << 20..=4 << 20).contains(&self.segment_bytes))
        {
            return Err(LayoutError::SegmentBytes(self.segment_bytes));
        }
        if self.bytes > MOST_DEVICE_BYTES {
            return Err(LayoutError::TooLarge { bytes: self.bytes });
        }
        let least = u64::from(LEAST_SEGMENTS) * u64::from(self.segment_bytes);
        if self.bytes < least {
            return Err(LayoutError::TooSmall { bytes: self.bytes, least });
        }
        // At most 2^38 bytes over 2^20.
        Ok((self.bytes / u64::from(self.segment_bytes)) as u32)
    }

    /// The least that cleaning a segment must gain, in bytes. It is more than the longest object
    /// takes: that much may be lost at the end of the segment that the survivors fill up.
    pub(crate) const fn least_gain(&self) -> u32 {
        self.segment_bytes / 32
    }

    /// The most that padding takes while the survivors of one segment are written.
    pub(crate) const fn padding(&self) -> u32 {
        (self.segment_bytes / FLUSH_BYTES + 1) * BLOCK_BYTES
    }
}

const _: () = assert!(stored(MOST_BYTES as u16) + 2 * BLOCK_BYTES < (1 << 20) / 32);

/// Why a device cannot be divided so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// A segment is 1, 2 or 4 MiB.
    SegmentBytes(u32),
    /// A log needs three segments.
    TooSmall {
        /// What the device has.
        bytes: u64,
        /// What it needs.
        least: u64,
    },
    /// Places reach [`MOST_DEVICE_BYTES`].
    TooLarge {
        /// What the device has.
        bytes: u64,
    },
    /// There is no memory for the tables.
    NoMemory,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::SegmentBytes(bytes) => {
                write!(f, "segments of {bytes} bytes: 1, 2 or 4 MiB are allowed")
            }
            LayoutError::TooSmall { bytes, least } => {
                write!(f, "a device of {bytes} bytes: a log needs {least}, three segments")
            }
            LayoutError::TooLarge { bytes } => {
                write!(f, "a device of {bytes} bytes: a log uses at most {MOST_DEVICE_BYTES}")
            }
            LayoutError::NoMemory => write!(f, "no memory for the tables of the segments"),
        }
    }
}

impl core::error::Error for LayoutError {}
