//! What a write does when the device is at its `mem_limit`.

use control::ControlError;
use sync::Mutex;
use sync::atomic::{AtomicU8, Ordering};
use zsmalloc::Limits;

/// What a write does when the device is at its `mem_limit`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum WhenFull {
    /// It fails at once, as a write to Linux's zram.
    #[default]
    Fail,
    /// It waits while pages move to the backing device, or become smaller: down the tiers if pages
    /// move by themselves, or with the codecs of priority 1 to 3. It fails when no page can move.
    Wait,
    /// A whole page goes to the backing device at once. A part of a page waits, as under `Wait`; so
    /// does a whole page for which the device has no room.
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

/// The share of the frames that is kept back for smaller objects, and the most of them.
const KEPT_BACK: u64 = 64;
const MOST_KEPT_BACK: u64 = 64;
/// The least frames that are kept back, if they are a sixteenth of all at most: as many as the
/// longest zspage has, whose objects may all have to leave before frames come free.
const LEAST_KEPT_BACK: u64 = 16;

/// What a search for pages that can move leaves to the next one.
#[derive(Default)]
pub(crate) struct Hand {
    /// Where it goes on: a clock's hand over all pages.
    pub(crate) next: usize,
    /// What the last search saw that could move no page in memory. While it is so, another one
    /// could not either.
    pub(crate) in_vain: Option<Seen>,
}

/// What decides whether pages in memory can move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// How often the device got its size.
    pub(crate) generation: u64,
    /// Pages that were written or freed.
    pub(crate) changes: u64,
    /// The bytes of the objects of pages; those that wait to be freed count no more.
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
    pub(crate) frames: u64,
    pub(crate) limit: u64,
    pub(crate) auto: bool,
    /// The time, in periods. What is not seen here, as memory that other devices free, is noticed
    /// in the next one.
    pub(crate) period: u32,
}

/// Seconds of a [`Seen::period`].
pub(crate) const PERIOD: u32 = 8;

/// What came of a search for pages that can move.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Moved {
    /// No page can.
    Nothing,
    /// None moved, but others used pages that could.
    InUse,
    /// Some moved.
    Some,
}

impl Moved {
    /// What came of a page that could move.
    pub(crate) fn of(could: bool, has_moved: bool) -> Moved {
        match (could, has_moved) {
            (_, true) => Moved::Some,
            (true, _) => Moved::InUse,
            _ => Moved::Nothing,
        }
    }
}

/// What a write does at the limit, and the limits that follow from it.
pub(crate) struct Full {
    policy: AtomicU8,
    /// Held by a writer that makes room, or waits for that. Taken before `post`.
    pub(crate) turn: Mutex<()>,
}

impl Full {
    pub(crate) fn new() -> Full {
        Full { policy: AtomicU8::new(0), turn: Mutex::new(()) }
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

    /// The limits of a pool whose device may have `frames`; 0 for no limit. Where writes wait, some
    /// frames are kept back.
    pub(crate) fn limits(&self, frames: u64) -> Limits {
        let all = if frames == 0 { u64::MAX } else { frames };
        let stores = match self.policy() {
            WhenFull::Wait | WhenFull::Spill if frames > 1 => {
                let least = (frames / 16).clamp(1, LEAST_KEPT_BACK);
                frames - (frames / KEPT_BACK).clamp(least, MOST_KEPT_BACK)
            }
            _ => all,
        };
        Limits { stores, all }
    }
}
