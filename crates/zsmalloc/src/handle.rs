//! Handles: the places of objects.

/// The place of a live object: its zspage and its slot. Never zero, and below `1 << 32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(u32);

/// Bits of a handle that number the slot within its zspage.
const SLOT_BITS: u32 = 7;

/// Slots a zspage can have.
pub(crate) const MAX_SLOTS: usize = 1 << SLOT_BITS;
/// The most zspages of a pool; no zspage has number 0.
pub(crate) const MAX_ZSPAGES: u32 = 1 << (32 - SLOT_BITS);

impl Handle {
    pub(crate) const fn new(zspage: u32, slot: usize) -> Handle {
        Handle((zspage << SLOT_BITS) | slot as u32)
    }

    pub(crate) const fn zspage(self) -> u32 {
        self.0 >> SLOT_BITS
    }

    pub(crate) const fn slot(self) -> usize {
        (self.0 as usize) & (MAX_SLOTS - 1)
    }

    /// The handle as a number, to be kept in a word.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The handle of a number from [`Handle::get`]; only such numbers name objects. A handle alone
    /// does not permit its holder to read or free the object: see [`crate::Pool::read`].
    #[must_use]
    pub const fn from_raw(raw: u32) -> Handle {
        Handle(raw)
    }
}
