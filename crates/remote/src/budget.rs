//! Budgets: a token bucket for bytes a second, and one for requests an hour.

use std::time::{Duration, Instant};

/// So much in so long. It begins full, and holds no more than that.
#[derive(Debug)]
pub(crate) struct Budget {
    amount: f64,
    period: Duration,
    left: f64,
    at: Instant,
}

impl Budget {
    /// `amount` in each `period`.
    pub(crate) fn new(amount: u64, period: Duration, now: Instant) -> Budget {
        let amount = amount as f64;
        Budget { amount, period, left: amount, at: now }
    }

    /// Whether one is left at least. The last one to spend may spend more than is left; the others
    /// wait for longer then.
    pub(crate) fn has_some(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        let grown = self.left + self.amount * passed / self.period.as_secs_f64();
        self.left = grown.min(self.amount);
        self.left >= 1.0
    }

    /// Spends, whether or not so much is left.
    pub(crate) fn spend(&mut self, amount: u64) {
        self.left -= amount as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spent_and_grows_again() {
        let start = Instant::now();
        let mut budget = Budget::new(100, Duration::from_secs(10), start);
        assert!(budget.has_some(start));
        budget.spend(99);
        assert!(budget.has_some(start));
        budget.spend(51);
        assert!(!budget.has_some(start));
        assert!(!budget.has_some(start + Duration::from_secs(5)));
        assert!(budget.has_some(start + Duration::from_secs(6)));
    }

    #[test]
    fn it_never_holds_more_than_its_amount() {
        let start = Instant::now();
        let mut budget = Budget::new(10, Duration::from_secs(1), start);
        let late = start + Duration::from_secs(1000);
        assert!(budget.has_some(late));
        budget.spend(10);
        assert!(!budget.has_some(late));
    }
}
