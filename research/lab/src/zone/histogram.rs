//! How often which time was taken, to about three percent: for percentiles of millions of calls.

use super::ticks::Clock;

/// Times below this have a place of their own each; above, each power of two has as many places.
const FINE: u64 = 32;
const FINE_BITS: u32 = FINE.trailing_zeros();

/// Places there are.
pub const PLACES: usize = (64 - FINE_BITS as usize + 1) * FINE as usize;

/// The place of a time.
#[inline]
#[must_use]
pub fn place(ticks: u64) -> usize {
    if ticks < FINE {
        return ticks as usize;
    }
    let power = ticks.ilog2();
    let within = (ticks >> (power - FINE_BITS)) & (FINE - 1);
    ((power - FINE_BITS + 1) as u64 * FINE + within) as usize
}

/// The middle of the times that have this place.
fn middle(place: usize) -> f64 {
    let (row, within) = (place as u64 / FINE, place as u64 % FINE);
    if row == 0 {
        return within as f64;
    }
    let step = (1u64 << (row - 1)) as f64;
    (FINE + within) as f64 * step + (step - 1.0) / 2.0
}

/// Times, counted.
#[derive(Clone)]
pub struct Histogram(Vec<u64>);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(vec![0; PLACES])
    }
}

impl Histogram {
    /// One more of so many ticks.
    #[inline]
    pub fn add(&mut self, ticks: u64) {
        self.0[place(ticks)] += 1;
    }

    /// So many more at a place.
    pub fn add_at(&mut self, place: usize, count: u64) {
        self.0[place] += count;
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time in nanoseconds that `part` of them do not exceed, a reading of the clock taken
    /// off; `None` of nothing.
    pub fn quantile(&self, clock: &Clock, part: f64) -> Option<f64> {
        let count = self.count();
        let wanted = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.0.iter().enumerate().find_map(|(place, times)| {
            seen += times;
            (seen >= wanted).then(|| clock.ns(middle(place) - clock.reading).max(0.0))
        })
    }

    /// The mean in nanoseconds, a reading of the clock taken off; the slowest thousandth, which is
    /// the system's doing, counts as the one before it.
    pub fn mean(&self, clock: &Clock) -> Option<f64> {
        let count = self.count();
        let most = self.quantile(clock, 0.999)?;
        let sum: f64 = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, times)| **times > 0)
            .map(|(place, times)| {
                clock.ns(middle(place) - clock.reading).clamp(0.0, most) * *times as f64
            })
            .sum();
        Some(sum / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_near_the_middle_of_its_place() {
        for ticks in (0..20_000).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let place = place(ticks);
            assert!(place < PLACES, "{ticks}");
            let error = (middle(place) - ticks as f64).abs();
            assert!(error <= ticks as f64 / FINE as f64, "{ticks} is {}", middle(place));
        }
    }

    #[test]
    fn places_ascend() {
        let mut times: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1]).collect();
        times.sort_unstable();
        assert!(times.windows(2).all(|pair| place(pair[0]) <= place(pair[1])));
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
