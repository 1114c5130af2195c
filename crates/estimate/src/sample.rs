//! Which pages are looked at.

use units::PAGE_SIZE;

/// Pages that are chosen together, because neighbours are alike: what one of them says is largely
/// what the others say. It is aligned to its size.
pub(crate) const CLUSTER: u64 = 4 * PAGE_SIZE as u64;
/// The least that is read of a source, if it has so much: an interval means little in a sample of
/// fewer clusters.
const LEAST: u64 = 4 << 20;

/// A random choice of clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    seed: u64,
    /// Of 2^32 clusters, those that are chosen.
    share: u64,
}

impl Choice {
    /// Chooses clusters of a source with `bytes`, so that of sources with `total` bytes together
    /// about `sample` are chosen.
    pub fn new(seed: u64, sample: u64, total: u64, bytes: u64) -> Choice {
        let share = |sample: u64, of: u64| match sample >= of {
            true => 1 << 32,
            false => ((u128::from(sample) << 32) / u128::from(of)) as u64,
        };
        Choice { seed, share: share(sample, total).max(share(LEAST.min(sample), bytes)) }
    }

    /// Is the cluster at this address chosen?
    pub fn has(self, address: u64) -> bool {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (address / CLUSTER));
        u64::from(random.u32(..)) < self.share
    }

    /// The parts of `start..end` that are in chosen clusters. Each is in one cluster.
    pub fn parts(self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = start / CLUSTER * CLUSTER;
        (first..end)
            .step_by(CLUSTER as usize)
            .filter(move |address| self.has(*address))
            .map(move |address| (address.max(start), (address + CLUSTER).min(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_clusters_is_chosen() {
        let choice = Choice::new(testkit::seed("estimate"), 1 << 30, 4 << 30, 4 << 30);
        let parts: Vec<_> = choice.parts(8192, 400 << 20).collect();
        let bytes: u64 = parts.iter().map(|(start, end)| end - start).sum();
        let share = bytes as f64 / (400 << 20) as f64;
        assert!((0.23..0.27).contains(&share), "{share}");
        assert!(parts.iter().all(|(start, end)| start / CLUSTER == (end - 1) / CLUSTER));
        assert!(parts.iter().all(|(start, end)| *start >= 8192 && *end <= 400 << 20));
    }

    #[test]
    fn small_sources_are_read_whole() {
        let choice = Choice::new(1, 256 << 20, 1 << 40, 2 << 20);
        assert_eq!(choice.parts(0, 2 << 20).map(|(s, e)| e - s).sum::<u64>(), 2 << 20);
    }
}
