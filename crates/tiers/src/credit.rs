//! The CPU time that may be spent.

/// CPU time in nanoseconds, earned as time goes by and spent by work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    percent: u32,
    left: i64,
}

/// Work of this many seconds' share may be saved up.
const SAVED_SECONDS: i64 = 2;

impl Credit {
    /// No credit yet. It earns `percent` of one CPU.
    #[must_use]
    pub fn new(percent: u32) -> Credit {
        Credit { percent, left: 0 }
    }

    /// Earns the share of `nanoseconds` that went by.
    pub fn earn(&mut self, nanoseconds: u64) {
        let share = i64::from(self.percent);
        let earned = i64::try_from(nanoseconds / 100).unwrap_or(i64::MAX).saturating_mul(share);
        let most = SAVED_SECONDS * 10_000_000 * share;
        self.left = self.left.saturating_add(earned).min(most);
    }

    /// Spends CPU time. The credit may become negative: the next work waits longer then.
    pub fn spend(&mut self, nanoseconds: u64) {
        self.left = self.left.saturating_sub(i64::try_from(nanoseconds).unwrap_or(i64::MAX));
    }

    /// The nanoseconds that may be spent now.
    #[must_use]
    pub fn left(&self) -> u64 {
        u64::try_from(self.left).unwrap_or(0)
    }
}
