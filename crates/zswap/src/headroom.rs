//! How much memory is to be there before pages come, and when to ask for more.

use core::fmt;

use sync::EventCount;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// What is to be there for pages that come next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headroom {
    /// Frames with memory that no object has.
    pub frames: u64,
    /// Entries that were never used; those that come free are used again besides.
    pub entries: u32,
    /// Nodes of the index of each area that were never used.
    pub nodes: u32,
}

impl Headroom {
    /// For `frames` frames, what goes with them: pages shrink to a quarter, or to next to nothing
    /// many at a time; neighbours share nodes.
    #[must_use]
    pub fn of_frames(frames: u64) -> Headroom {
        let entries = u32::try_from(frames.saturating_mul(4)).unwrap_or(u32::MAX).max(4096);
        Headroom { frames, entries, nodes: (entries / 16).max(512) }
    }

    /// This, but `frames` frames at least.
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

/// When to ask for more memory.
pub(crate) struct Provision {
    ahead: bool,
    pub(crate) low_frames: AtomicU64,
    pub(crate) low_entries: AtomicU32,
    /// It has been asked for since it was last looked at.
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
