//! One of something per lane, each on cache lines of its own.

use units::Lane;

use crate::CachePadded;

/// One `T` per lane.
pub struct PerLane<T> {
    items: Box<[CachePadded<T>]>,
}

impl<T> PerLane<T> {
    /// `lanes` items (at least one), made by `make`.
    pub fn new(lanes: usize, mut make: impl FnMut(usize) -> T) -> PerLane<T> {
        PerLane { items: (0..lanes.max(1)).map(|n| CachePadded::new(make(n))).collect() }
    }

    /// The item of `lane`, taken modulo the lanes there are.
    #[inline]
    pub fn get(&self, lane: Lane) -> &T {
        let n = lane.0 as usize;
        // A modulo by an unknown number takes as long as a lock; it is hardly ever needed.
        let n = if n < self.items.len() { n } else { n % self.items.len() };
        &self.items[n]
    }

    /// Every item.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|item| &**item)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.items.len()
    }
}
