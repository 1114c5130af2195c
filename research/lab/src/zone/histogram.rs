//! A histogram of times with a resolution of one percent: percentiles of millions of calls.

use hdrhistogram::Histogram as Counts;

use super::ticks::Clock;

/// The largest time in ticks that is distinguished: some minutes.
const MOST: u64 = 1 << 40;
/// Significant digits of a time.
const DIGITS: u8 = 2;

/// Counts of times. All its memory is allocated at the start.
#[derive(Clone)]
pub struct Histogram(Counts<u64>);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(Counts::new_with_bounds(1, MOST, DIGITS).expect("bounds that it can have"))
    }
}

impl Histogram {
    /// Counts a time of `ticks` ticks.
    #[inline]
    pub fn add(&mut self, ticks: u64) {
        self.0.saturating_record(ticks);
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Number of times counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The nanoseconds that represent all times in the same bucket as `ticks`, less one clock
    /// reading.
    fn ns(&self, clock: &Clock, ticks: u64) -> f64 {
        clock.ns(self.0.median_equivalent(ticks) as f64 - clock.reading).max(0.0)
    }

    /// The nanoseconds that a part `part` of the times does not exceed, less one clock reading.
    /// `None` if it is empty.
    pub fn quantile(&self, clock: &Clock, part: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.ns(clock, self.0.value_at_quantile(part)))
    }

    /// The mean in nanoseconds, less one clock reading. The slowest thousandth, which the system
    /// causes, takes the value before it.
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
