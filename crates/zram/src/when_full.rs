//! What a write does when the device is at its `mem_limit`.

use control::ControlError;
use sync::Mutex;
use sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a write does when the device is at its `mem_limit`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum WhenFull {
    /// It fails at once, as a write to Linux's zram.
    #[default]
    Fail,
    /// It waits while pages move to the backing device, or become smaller: down the tiers if pages
    /// move by themselves, or with the codec of priority 1. It fails when no page can move.
    Wait,
    /// A whole page goes to the backing device at once. A part of a page waits, as under `Wait`.
    Spill,
}

impl WhenFull {
    const ALL: [WhenFull; 3] = [WhenFull::Fail, WhenFull::Wait, WhenFull::Spill];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            WhenFull::Fail => "fail",
            WhenFull::Wait => "wait",
            WhenFull::Spill => "spill",
        }
    }

    /// What the word says.
    ///
    /// # Errors
    /// `EINVAL` for any other word; the message has those that there are.
    pub fn parse(text: &str) -> Result<WhenFull, ControlError> {
        let word = text.trim();
        WhenFull::ALL.into_iter().find(|it| it.name() == word).ok_or_else(|| {
            ControlError::invalid(alloc::format!(
                "when_full takes fail, wait or spill, not {word:?}"
            ))
        })
    }
}

/// Whose share of the memory below `mem_limit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// The stores'. Where writes wait, some frames are kept back.
    Stores,
    /// All of it: a smaller object needs a place before the larger one is gone.
    All,
}

/// The share of the frames that is kept back for smaller objects, and the most of them.
const KEPT_BACK: u64 = 64;
const MOST_KEPT_BACK: u64 = 64;
/// The least frames that are kept back, if they are a sixteenth of all at most. The first objects
/// of several size classes need a frame each before frames come free.
const LEAST_KEPT_BACK: u64 = 8;

/// Where the search for pages that can move goes on: a clock's hand over all pages.
pub(crate) type Hand = usize;

/// How the writers of a device make room in its memory.
pub(crate) struct Full {
    policy: AtomicU8,
    /// How often room was made.
    rounds: AtomicU64,
    /// Held by the writer that makes room; the others wait for it here, and then try again. It is
    /// no reader. Taken before the device's `post`.
    pub(crate) hand: Mutex<Hand>,
}

impl Full {
    pub(crate) fn new() -> Full {
        Full { policy: AtomicU8::new(0), rounds: AtomicU64::new(0), hand: Mutex::new(0) }
    }

    #[inline]
    pub(crate) fn policy(&self) -> WhenFull {
        // Relaxed: it says what to do, not what memory holds.
        let policy = self.policy.load(Ordering::Relaxed);
        WhenFull::ALL.get(usize::from(policy)).copied().unwrap_or_default()
    }

    pub(crate) fn set_policy(&self, policy: WhenFull) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// The most frames of a pool whose device may have `frames`; 0 for no limit.
    pub(crate) fn limit(&self, frames: u64, room: Room) -> u64 {
        match (self.policy(), room) {
            (WhenFull::Wait | WhenFull::Spill, Room::Stores) if frames > 1 => {
                let least = (frames / 16).clamp(1, LEAST_KEPT_BACK);
                frames - (frames / KEPT_BACK).clamp(least, MOST_KEPT_BACK)
            }
            _ => frames,
        }
    }

    /// How often room was made. Who was refused after that looks again before it makes room.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Counts that room was made. The caller holds `hand`.
    pub(crate) fn count_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }
}
