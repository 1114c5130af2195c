//! The key of a page, and the word that names its entry.

use core::fmt;
use core::num::NonZeroU64;

use control::ControlError;

/// The most swap types at once; Linux has about as many (`MAX_SWAPFILES`).
pub const MAX_TYPES: usize = 32;

/// The most pages of an area: 128 TiB.
pub const MAX_OFFSETS: u64 = 1 << OFFSET_BITS;

const OFFSET_BITS: u32 = 35;

/// The number of a swap area.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwapType(u8);

impl SwapType {
    /// The swap type with number `number`.
    ///
    /// # Errors
    /// `EINVAL` from [`MAX_TYPES`] on.
    pub fn new(number: usize) -> Result<SwapType, ControlError> {
        match u8::try_from(number) {
            Ok(number) if usize::from(number) < MAX_TYPES => Ok(SwapType(number)),
            _ => {
                let most = MAX_TYPES - 1;
                let message = alloc::format!("there is no swap type {number}: 0 to {most} are");
                Err(ControlError::invalid(message))
            }
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SwapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A page of swap space: its area and its offset there, in pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The area.
    pub swap: SwapType,
    /// The page's number in the area, below [`MAX_OFFSETS`].
    pub offset: u64,
}

impl Key {
    /// Packs the key into 40 bits.
    pub(crate) const fn pack(self) -> u64 {
        (self.swap.0 as u64) << OFFSET_BITS | self.offset
    }

    /// Bits of [`Key::pack`].
    pub(crate) const BITS: u32 = OFFSET_BITS + 5;

    pub(crate) const fn unpack(bits: u64) -> Key {
        let swap = (bits >> OFFSET_BITS) as u8 & (MAX_TYPES as u8 - 1);
        Key { swap: SwapType(swap), offset: bits & (MAX_OFFSETS - 1) }
    }
}

/// Names an entry by its number and its life: how often that number was used before. Successive
/// entries with one number have different words. So a word that an index still holds names the same
/// entry as when it was read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Word(NonZeroU64);

impl Word {
    /// The word of entry `number`, which is at least 1, in life `life`.
    #[must_use]
    pub const fn new(number: u32, life: u32) -> Option<Word> {
        match NonZeroU64::new((life as u64) << 32 | number as u64) {
            Some(word) if number != 0 => Some(Word(word)),
            _ => None,
        }
    }

    /// In the place of a page whose entry could not be right when the cache was recovered: it names
    /// no entry.
    pub(crate) const LOST: Word = Word(NonZeroU64::new(u64::MAX << 32).unwrap());

    /// The number of the entry: at least 1. Two entries in use at the same time never share a
    /// number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0.get() as u32
    }

    /// The word as a number, never zero.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The word of a number from [`Word::get`]; `None` for zero. Only such numbers name entries.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Option<Word> {
        match NonZeroU64::new(raw) {
            Some(word) => Some(Word(word)),
            None => None,
        }
    }
}
