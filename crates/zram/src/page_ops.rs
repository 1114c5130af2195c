//! What the engine is asked for beyond a page stored or loaded, and what it answers.

use objects::Object;
use units::Page;

use crate::slot::{Backed, Kind, Slot};

/// Where a page came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loaded {
    /// From memory: it is there.
    Page,
    /// It is on the backing device: whoever does I/O fetches the block, which must be kept from
    /// reuse by a reader of the backing device taken before the slot was looked at.
    Backed(Backed),
}

/// Which pages something is done to, of those that lie in memory and are not same-filled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Select {
    /// All of them.
    #[default]
    Any,
    /// Those nobody used since they were marked idle.
    Idle,
    /// Those that would not shrink.
    Huge,
    /// Those that would not shrink and are idle.
    HugeIdle,
    /// Those that no codec of the device makes smaller.
    Incompressible,
}

impl Select {
    /// Is this slot one of them?
    #[must_use]
    pub const fn admits(self, slot: Slot) -> bool {
        let huge = match slot.kind() {
            Kind::Stored(Object::Huge(_)) => true,
            Kind::Stored(Object::Compressed { .. }) => false,
            _ => return false,
        };
        match self {
            Select::Any => true,
            Select::Idle => slot.is_idle(),
            Select::Huge => huge,
            Select::HugeIdle => huge && slot.is_idle(),
            Select::Incompressible => slot.is_incompressible(),
        }
    }
}

/// How pages are to be compressed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Recompression {
    /// By the codec of this priority, 1 to 3.
    pub priority: u8,
    /// These.
    pub select: Select,
    /// Only objects of at least so many bytes, and only results below it; 0 for any.
    pub threshold: usize,
    /// There is no codec of a higher priority: what does not shrink now never will.
    pub last: bool,
}

/// What became of a page that was to be compressed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recompressed {
    /// It was none to try, or it was used meanwhile.
    Skipped,
    /// The result took no less memory and was thrown away.
    InVain,
    /// It takes less memory now.
    Smaller,
}

/// What a page is exported as.
pub(crate) struct Export<'a> {
    /// The bytes of the block.
    pub bytes: &'a mut Page,
    /// The block's number.
    pub block: u32,
    /// As it is in memory, or as a page.
    pub compressed: bool,
}
