//! The amount of memory to provide before pages come, and the marks at which to ask for more.

use core::fmt;

use sync::EventCount;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The memory to provide for the next pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headroom {
    /// Frames with memory that hold no object.
    pub frames: u64,
    /// Entries that were never used. Freed entries are reused besides.
    pub entries: u32,
    /// Nodes of the index of each area that were never used.
    pub nodes: u32,
}

impl Headroom {
    /// Headroom for `frames` frames, with entries and nodes to match. A page shrinks to a quarter,
    /// or to almost nothing, which happens to many pages at a time. Neighbours share nodes.
    #[must_use]
    pub fn of_frames(frames: u64) -> Headroom {
        let entries = u32::try_from(frames.saturating_mul(4)).unwrap_or(u32::MAX).max(4096);
        Headroom { frames, entries, nodes: (entries / 16).max(512) }
    }

    /// The same headroom with at least `frames` frames.
    #[must_use]
    pub fn at_least(self, frames: u64) -> Headroom {
        Headroom { frames: self.frames.max(frames), ..self }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames, {} entries, {} nodes", self.frames, self.entries, self.nodes)
    }
}

/// The marks at which to ask for more memory.
pub(crate) struct Provision {
    ahead: bool,
    pub(crate) low_frames: AtomicU64,
    pub(crate) low_entries: AtomicU32,
    /// Set when memory was asked for since the last `provide`.
    pub(crate) asked: AtomicBool,
    pub(crate) event: EventCount,
}

impl Provision {
    pub(crate) fn new(ahead: bool) -> Provision {
        Provision {
            ahead,
            low_frames: AtomicU64::new(0),
            low_entries: AtomicU32::new(0),
            asked: AtomicBool::new(false),
            event: EventCount::default(),
        }
    }

    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead
    }
}
