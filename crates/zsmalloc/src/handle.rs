//! Names of objects.

/// The name of a live object. Never zero, and below `1 << 32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(u32);

/// Bits of a handle that number the slot within its zspage.
const SLOT_BITS: u32 = 7;

/// Slots a zspage can have.
pub(crate) const MAX_SLOTS: usize = 1 << SLOT_BITS;
/// Zspages a pool can have; number 0 is nobody's.
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

    /// The handle a number stands for; only numbers from [`Handle::get`] name objects. To have one
    /// is no leave to read or free what it names: see [`crate::Pool::read`].
    #[must_use]
    pub const fn from_raw(raw: u32) -> Handle {
        Handle(raw)
    }
}
