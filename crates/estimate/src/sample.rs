//! Which pages are looked at.

use units::PAGE_SIZE;

/// Pages that are chosen together, because neighbours are alike: what one of them says is largely
/// what the others say. It is aligned to its size, as far as pages are.
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

    /// The parts of `start..end` that are in chosen clusters, whole pages from `start` on. Each is
    /// in one cluster. In a core dump of QEMU pages begin anywhere, so clusters do, too.
    pub fn parts(self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = start % PAGE_SIZE as u64;
        let first = start / CLUSTER * CLUSTER + before;
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
    fn pages_are_whole_wherever_they_begin() {
        let choice = Choice::new(1, 256 << 20, 1 << 40, 2 << 20);
        for start in [0, 1000, 4096 + 1000, 3 * 4096 + 4095, 16384 + 1] {
            let end = start + 9 * 4096;
            let parts: Vec<_> = choice.parts(start, end).collect();
            assert!(parts.iter().all(|it| (it.0 - start) % 4096 == 0 && (it.1 - it.0) % 4096 == 0));
            assert!(parts.iter().all(|it| it.1 - it.0 <= CLUSTER), "{parts:?}");
            assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0), "{parts:?}");
            assert_eq!((parts[0].0, parts[parts.len() - 1].1), (start, end));
        }
    }

    #[test]
    fn small_sources_are_read_whole() {
        let choice = Choice::new(1, 256 << 20, 1 << 40, 2 << 20);
        assert_eq!(choice.parts(0, 2 << 20).map(|(s, e)| e - s).sum::<u64>(), 2 << 20);
    }
}
