//! The state of recompression: how far a pass has come, and what its thread works with.

use alloc::{boxed::Box, format};

use control::{ControlError, Errno};
use sync::Mutex;
use sync::atomic::{AtomicU32, Ordering};
use tiers::Allowance;
use units::{PAGE_SIZE, Page};
use zcomp::{Compressor, Stream};

/// The codec of recompressed objects.
pub(crate) const WARM_CODEC: &str = zcomp::ZSTD;

/// Passes in the time after which a page is recompressed.
pub(crate) const PASSES: u32 = 8;
/// The most that a page waits, in times of [`crate::Policy::auto_age`]: an entry counts up to 255
/// passes.
const MOST_PATIENCE: u32 = 16;

/// The state of recompression. Any number of threads may use it at once.
pub(crate) struct Warming {
    /// `None` while it is off. One thread at a time goes on with the pass.
    pub(crate) walk: Mutex<Option<Walk>>,
    /// How many times [`crate::Policy::auto_age`] a page waits; 0 while recompression is off.
    patience: AtomicU32,
}

impl Default for Warming {
    fn default() -> Warming {
        Warming { walk: Mutex::new(None), patience: AtomicU32::new(0) }
    }
}

impl Warming {
    /// How many times [`crate::Policy::auto_age`] a page waits; 0 while recompression is off.
    pub(crate) fn patience(&self) -> u32 {
        self.patience.load(Ordering::Relaxed)
    }

    pub(crate) fn set_patience(&self, patience: u32) {
        self.patience.store(patience, Ordering::Relaxed);
    }
}

/// The memory that the thread works with; nothing is added to it later.
pub(crate) struct Tool {
    /// Its own, so that no reader waits for it.
    pub(crate) stream: Stream,
    pub(crate) page: Box<Page>,
}

/// A pass through all entries.
pub(crate) struct Walk {
    pub(crate) tool: Tool,
    /// The next entry; those before it are done. 0 between two passes.
    pub(crate) next: u32,
    /// Nanoseconds since the pass began.
    pub(crate) since: u64,
    /// Pages recompressed, and read soon afterwards, when the pass before ended.
    pub(crate) before: (u64, u64),
    percent: u32,
    credit: Allowance,
}

impl Walk {
    /// Begins with the counts `before`.
    ///
    /// # Errors
    /// `ENOMEM` when memory is out.
    pub(crate) fn new(
        compressor: &dyn Compressor,
        before: (u64, u64),
    ) -> Result<Walk, ControlError> {
        let stream = Stream::new(compressor)
            .map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
        let tool = Tool { stream, page: Box::new([0; PAGE_SIZE]) };
        let credit = Allowance::of_cpu(0);
        Ok(Walk { tool, next: 0, since: 0, before, percent: 0, credit })
    }

    /// Earns CPU time. Returns how much there is, in nanoseconds.
    pub(crate) fn earn(&mut self, percent: u32, elapsed: u64) -> u64 {
        if self.percent != percent {
            (self.percent, self.credit) = (percent, Allowance::of_cpu(percent));
        }
        self.since = self.since.saturating_add(elapsed);
        self.credit.earn(elapsed);
        self.credit.left()
    }

    pub(crate) fn spend(&mut self, nanoseconds: u64) {
        self.credit.spend(nanoseconds);
    }
}

/// How patient to be after a pass in which `moved` pages were recompressed, and `soon` were read
/// soon after that. A page that is read soon cost CPU time twice and gained little.
pub(crate) fn patience_after(patience: u32, moved: u64, soon: u64) -> u32 {
    // A few reads say nothing.
    let moved = moved.max(64);
    if soon > moved / 4 {
        (patience * 2).min(MOST_PATIENCE)
    } else if soon < moved / 16 {
        (patience / 2).max(1)
    } else {
        patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_come_back_soon_make_it_patient() {
        assert_eq!(patience_after(1, 1000, 300), 2);
        assert_eq!(patience_after(2, 1000, 100), 2);
        assert_eq!(patience_after(2, 1000, 10), 1);
        assert_eq!(patience_after(1, 0, 3), 1);
        let most = (0..10).fold(1, |patience, _| patience_after(patience, 0, 1000));
        assert!(most * PASSES <= 255, "an entry cannot count so far: {most}");
        assert!((0..10).fold(most, |patience, _| patience_after(patience, 0, 0)) == 1);
    }

    #[test]
    fn no_more_cpu_time_is_spent_than_there_is() {
        let compressor = zcomp::open(WARM_CODEC, &zcomp::Params::default()).unwrap();
        let mut walk = Walk::new(&*compressor, (0, 0)).unwrap();
        assert_eq!(walk.earn(5, 1_000_000_000), 50_000_000);
        walk.spend(70_000_000);
        assert_eq!(walk.earn(5, 0), 0);
        assert_eq!(walk.earn(5, 1_000_000_000), 30_000_000);
    }
}
