//! How often which time was taken, to a percent: for percentiles of millions of calls.

use hdrhistogram::Histogram as Counts;

use super::ticks::Clock;

/// Ticks that are told from more: some minutes.
const MOST: u64 = 1 << 40;
/// Digits that a time keeps.
const DIGITS: u8 = 2;

/// Times, counted. It takes its memory when it is made.
#[derive(Clone)]
pub struct Histogram(Counts<u64>);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(Counts::new_with_bounds(1, MOST, DIGITS).expect("bounds that it can have"))
    }
}

impl Histogram {
    /// One more of so many ticks.
    #[inline]
    pub fn add(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// What stands for all times that are not told from `ticks`, in nanoseconds, a reading of the
    /// clock taken off.
    fn ns(&self, clock: &Clock, ticks: u64) -> f64 {
        clock.ns(self.0.median_equivalent(ticks) as f64 - clock.reading).max(0.0)
    }

    /// The time in nanoseconds that `part` of them do not exceed, a reading of the clock taken
    /// off; `None` of nothing.
    pub fn quantile(&self, clock: &Clock, part: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.ns(clock, self.0.value_at_quantile(part)))
    }

    /// The mean in nanoseconds, a reading of the clock taken off; the slowest thousandth, which is
    /// the system's doing, counts as the one before it.
    pub fn mean(&self, clock: &Clock) -> Option<f64> {
        let most = self.quantile(clock, 0.999)?;
        let times = self.0.iter_recorded().map(|time| {
            self.ns(clock, time.value_iterated_to()).min(most) * time.count_at_value() as f64
        });
        Some(times.sum::<f64>() / self.count() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_keeps_its_first_digits() {
        let clock = Clock { ticks_per_ns: 1.0, reading: 0.0 };
        for ticks in (0..3_000).chain((0..40).map(|bit| 1 << bit)) {
            let mut times = Histogram::default();
            times.add(ticks);
            let found = times.quantile(&clock, 0.5).expect("there is one");
            assert!((found - ticks as f64).abs() <= ticks as f64 / 100.0, "{ticks} is {found}");
        }
        let mut times = Histogram::default();
        times.add(u64::MAX);
        assert!(times.quantile(&clock, 0.5) >= Some((MOST - 1) as f64));
    }

    #[test]
    fn quantiles() {
        let clock = Clock { ticks_per_ns: 1.0, reading: 2.0 };
        let mut times = Histogram::default();
        assert_eq!(times.quantile(&clock, 0.5), None);
        (1..=20).for_each(|ticks| times.add(ticks));
        assert_eq!(times.quantile(&clock, 0.5), Some(8.0));
        assert_eq!(times.quantile(&clock, 1.0), Some(18.0));
        let mut both = times.clone();
        both.merge(&times);
        assert_eq!((both.count(), both.quantile(&clock, 0.5)), (40, Some(8.0)));
        assert_eq!(
            times.mean(&clock),
            Some((1..=20).map(|n| f64::from(n - 2).max(0.0)).sum::<f64>() / 20.0)
        );
    }
}
