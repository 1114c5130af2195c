//! A circuit breaker (Michael Nygard, "Release It!", 2007): a store that fails is left alone for a
//! while, so that nobody waits for it again and again. So is an object that a store has lost.

use std::time::{Duration, Instant};

/// This many failures in a row open it.
pub(crate) const FAILURES: u32 = 3;
/// The first pause. Each failure after it doubles the pause, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// The state of one store, or of one object at one store.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    /// Nobody asks the store before this time.
    until: Option<Instant>,
}

impl Breaker {
    /// Whether the store may be asked. After a pause one caller may try; the others wait for its
    /// result, for as long as the first pause.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        match self.until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                self.until = Some(now + FIRST);
                true
            }
        }
    }

    /// Whether [`Breaker::allows`] would be true now.
    pub(crate) fn would_allow(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Whether the store is left alone now, or on trial.
    pub(crate) fn is_open(&self) -> bool {
        self.until.is_some()
    }

    /// The store answered.
    pub(crate) fn succeeded(&mut self) {
        *self = Breaker::default();
    }

    /// The store failed, or did not answer in time. Returns whether it is left alone from now on.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let Some(more) = self.failures.checked_sub(FAILURES) else { return false };
        let was_closed = self.until.is_none();
        self.until = Some(now + FIRST.saturating_mul(1 << more.min(8)).min(LONGEST));
        was_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_lets_one_try() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        assert!(!breaker.failed(start) && !breaker.failed(start));
        breaker.succeeded();
        assert!(!breaker.failed(start) && !breaker.failed(start));
        assert!(breaker.allows(start) && !breaker.is_open());
        assert!(breaker.failed(start));
        assert!(!breaker.allows(start) && breaker.is_open());
        let later = start + FIRST;
        assert!(breaker.allows(later), "one may try");
        assert!(!breaker.allows(later), "the others wait for it");
        assert!(!breaker.failed(later), "it was open already");
        assert!(!breaker.allows(later + FIRST), "the pause is longer now");
        assert!(breaker.allows(later + 2 * FIRST));
        breaker.succeeded();
        assert!(breaker.allows(later) && !breaker.is_open());
    }

    #[test]
    fn a_pause_has_an_end() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..1000 {
            breaker.failed(start);
        }
        assert!(!breaker.allows(start) && breaker.allows(start + LONGEST));
    }
}
