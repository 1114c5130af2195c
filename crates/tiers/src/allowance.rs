//! What may be spent: one token bucket, for CPU time, bytes and requests.

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// CPU time that may be saved up: the share of this many seconds.
const SAVED_SECONDS: u64 = 2;
/// The least that is saved up, in bytes, whatever the rate: this much is written at a time.
const LEAST: u64 = 32 << 10;

/// What is earned as time goes by and spent by work. More than is left may be spent: the debt is
/// paid before the next work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    amount: u64,
    period: u64,
    most: u64,
    /// Times `period`: nothing is rounded.
    left: i128,
}

impl Allowance {
    /// `amount` in each `period` (nanoseconds, at least one). No more than `most` is saved up, and
    /// nothing is there yet.
    #[must_use]
    pub fn new(amount: u64, period: u64, most: u64) -> Allowance {
        Allowance { amount, period: period.max(1), most, left: 0 }
    }

    /// The CPU time, in nanoseconds, of `percent` of one CPU.
    #[must_use]
    pub fn of_cpu(percent: u32) -> Allowance {
        let amount = SECOND / 100 * u64::from(percent);
        Allowance::new(amount, SECOND, SAVED_SECONDS * amount)
    }

    /// The bytes of a day. Those of an hour are saved up, or 32 KiB if that is more.
    #[must_use]
    pub fn of_a_day(bytes: u64) -> Allowance {
        let most = if bytes == 0 { 0 } else { (bytes / 24).max(LEAST) };
        Allowance::new(bytes, DAY, most)
    }

    /// The same with all saved up.
    #[must_use]
    pub fn full(self) -> Allowance {
        Allowance { left: self.limit(), ..self }
    }

    /// What a period allows.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// The most that may be saved up.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    fn limit(&self) -> i128 {
        i128::from(self.most) * i128::from(self.period)
    }

    /// Earns at a rate for `nanoseconds` that went by. What was saved up or owed at another rate is
    /// gone.
    pub fn earn_at(&mut self, rate: Allowance, nanoseconds: u64) {
        let has_rate = Allowance { left: self.left, ..rate };
        if *self != has_rate {
            *self = rate;
        }
        self.earn(nanoseconds);
    }

    /// Work of a thread that takes what may be spent of its CPU time. `clock` reads that, in
    /// nanoseconds.
    #[must_use]
    pub fn spell<'a>(&self, clock: &'a dyn Fn() -> u64) -> Spell<'a> {
        Spell { clock, begun: clock(), most: self.left() }
    }

    /// Earns for `nanoseconds` that went by.
    pub fn earn(&mut self, nanoseconds: u64) {
        let earned = i128::from(self.amount).saturating_mul(i128::from(nanoseconds));
        self.left = self.left.saturating_add(earned).min(self.limit());
    }

    /// Spends, whether or not that much is left.
    pub fn spend(&mut self, amount: u64) {
        let spent = i128::from(amount).saturating_mul(i128::from(self.period));
        self.left = self.left.saturating_sub(spent);
    }

    /// What may be spent now.
    #[must_use]
    pub fn left(&self) -> u64 {
        u64::try_from(self.left.max(0) / i128::from(self.period)).unwrap_or(u64::MAX)
    }
}

/// Work of a thread that takes some CPU time.
#[derive(Clone, Copy)]
pub struct Spell<'a> {
    clock: &'a dyn Fn() -> u64,
    begun: u64,
    most: u64,
}

impl Spell<'_> {
    /// Whether the work may go on.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.spent() < self.most
    }

    /// The CPU time that it took so far, in nanoseconds.
    #[must_use]
    pub fn spent(&self) -> u64 {
        (self.clock)().saturating_sub(self.begun)
    }
}
