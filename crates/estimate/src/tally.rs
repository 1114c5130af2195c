//! Sums over a sample, and what they say of the whole.

/// How many standard errors away the truth is at most, 95 times of 100, in a large sample.
const Z: f64 = 1.96;

/// Sums over clusters of pages: x is the pages of a cluster, y is what its pages add up to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    clusters: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// A mean for each page, and how far from it the truth may be, at 95 %.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Mean {
    pub mean: f64,
    pub error: f64,
}

impl Tally {
    /// Adds a cluster of `x` pages.
    pub fn add(&mut self, x: f64, y: f64) {
        self.clusters += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
        self.yy += y * y;
    }

    /// The pages of all clusters.
    pub fn pages(&self) -> f64 {
        self.x
    }

    /// The sum of y over all clusters.
    pub fn sum(&self) -> f64 {
        self.y
    }

    /// The clusters of both.
    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            clusters: self.clusters + other.clusters,
            x: self.x + other.x,
            y: self.y + other.y,
            xx: self.xx + other.xx,
            xy: self.xy + other.xy,
            yy: self.yy + other.yy,
        }
    }

    /// The mean of y for each page; `None` without a page. The sample was taken of `all` pages.
    ///
    /// It is the ratio estimator of cluster sampling (Cochran, Sampling Techniques, chapter 6): a
    /// sample of everything has no error.
    pub fn mean(&self, all: f64) -> Option<Mean> {
        if self.x == 0.0 {
            return None;
        }
        let mean = self.y / self.x;
        let left = (1.0 - self.x / all.max(self.x)).max(0.0);
        if left == 0.0 {
            return Some(Mean { mean, error: 0.0 });
        }
        if self.clusters < 2.0 {
            return Some(Mean { mean, error: f64::INFINITY });
        }
        let squares = self.yy - 2.0 * mean * self.xy + mean * mean * self.xx;
        let variance = squares.max(0.0) / (self.clusters - 1.0);
        let pages = self.x / self.clusters;
        let error = Z * (left * variance / self.clusters).sqrt() / pages;
        Some(Mean { mean, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_everything_is_certain() {
        let mut tally = Tally::default();
        assert_eq!(tally.mean(8.0), None);
        tally.add(4.0, 4096.0);
        assert_eq!(tally.mean(8.0).unwrap().error, f64::INFINITY);
        tally.add(4.0, 0.0);
        assert_eq!(tally.mean(8.0), Some(Mean { mean: 512.0, error: 0.0 }));
        assert!(tally.mean(800.0).unwrap().error > 500.0);
    }

    /// Draws samples of a population whose mean is known. A factor in the error that is wrong, such
    /// as a forgotten root, changes how often the interval holds the mean.
    #[test]
    fn intervals_hold_the_truth_95_times_of_100() {
        let mut random = fastrand::Rng::with_seed(testkit::seed("estimate"));
        let population: Vec<(f64, f64)> = (0..4000)
            .map(|_| {
                let pages = random.u32(1..=4);
                let bytes = (0..pages).map(|_| random.f64().powi(3) * 4096.0).sum();
                (f64::from(pages), bytes)
            })
            .collect();
        let (x, y) = population.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let mut held = 0;
        for _ in 0..1000 {
            let mut tally = Tally::default();
            for (pages, bytes) in &population {
                if random.f64() < 0.1 {
                    tally.add(*pages, *bytes);
                }
            }
            let Mean { mean, error } = tally.mean(x).unwrap();
            held += u32::from((mean - y / x).abs() <= error);
        }
        assert!((910..=985).contains(&held), "{held} of 1000");
    }
}
