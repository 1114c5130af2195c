//! Statistics that no two lanes share a cache line for.

use units::Lane;

use crate::PerLane;
use crate::atomic::{AtomicU64, Ordering};

/// `N` counters per lane. Adding touches the lane's own lines; reading sums them. Nothing resets
/// a writer's counter under it: readers take differences.
pub struct LaneCounters<const N: usize> {
    lanes: PerLane<[AtomicU64; N]>,
}

impl<const N: usize> LaneCounters<N> {
    /// All zero.
    #[must_use]
    pub fn new(lanes: usize) -> LaneCounters<N> {
        let zeroes = |_| core::array::from_fn(|_| AtomicU64::new(0));
        LaneCounters { lanes: PerLane::new(lanes, zeroes) }
    }

    /// Adds `amount` to counter `which`. A gauge is lowered by adding a negative number: lanes
    /// wrap on their own and the sum comes out right.
    #[inline]
    pub fn add(&self, lane: Lane, which: usize, amount: i64) {
        self.lanes.get(lane)[which].fetch_add(amount as u64, Ordering::Relaxed);
    }

    /// The sum over all lanes. Taken while others add, it is the value at no single instant; a
    /// gauge that would come out negative for that reason reads as zero.
    #[must_use]
    pub fn sum(&self, which: usize) -> u64 {
        let total = self
            .lanes
            .iter()
            .fold(0u64, |sum, lane| sum.wrapping_add(lane[which].load(Ordering::Relaxed)));
        (total as i64).max(0) as u64
    }

    /// Sets counter `which` to zero in every lane; only while nobody adds.
    pub fn clear(&self, which: usize) {
        for lane in self.lanes.iter() {
            lane[which].store(0, Ordering::Relaxed);
        }
    }
}
