//! The bytes that may be written.

/// The nanoseconds of a day, and of the time that is saved up: an hour.
const DAY: i128 = 86_400_000_000_000;
const SAVED: i128 = DAY / 24;
/// The least that is saved up, in bytes, whatever the rate: so much is written at a time.
const LEAST: u64 = 32 << 10;

/// Bytes that a day allows, earned as time goes by and spent by writes. No more is saved up than an
/// hour's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    a_day: u64,
    /// Bytes, times the nanoseconds of a day: nothing is rounded.
    left: i128,
}

impl Allowance {
    /// Nothing is allowed yet. It earns `a_day` bytes a day.
    #[must_use]
    pub fn new(a_day: u64) -> Allowance {
        Allowance { a_day, left: 0 }
    }

    /// The bytes of a day.
    #[must_use]
    pub fn a_day(&self) -> u64 {
        self.a_day
    }

    /// The most that may be saved up, in bytes: that of an hour, or 32 KiB if that is more.
    #[must_use]
    pub fn most(&self) -> u64 {
        match self.a_day {
            0 => 0,
            a_day => (a_day / 24).max(LEAST),
        }
    }

    /// Earns the bytes of `nanoseconds` that went by.
    pub fn earn(&mut self, nanoseconds: u64) {
        // More than is saved up is lost anyway, so nothing overflows.
        let elapsed = i128::from(nanoseconds).min(DAY);
        let a_day = i128::from(self.a_day);
        let most = (a_day * SAVED).max(i128::from(self.most()) * DAY);
        self.left = (self.left + a_day * elapsed).min(most);
    }

    /// Spends bytes that were written. More than were left may have been: they are paid back before
    /// the next write.
    pub fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(i128::from(bytes).saturating_mul(DAY));
    }

    /// The bytes that may be written now.
    #[must_use]
    pub fn left(&self) -> u64 {
        u64::try_from(self.left.max(0) / DAY).unwrap_or(u64::MAX)
    }
}
