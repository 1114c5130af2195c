//! Clusters: runs of neighbours in the list of single frames that are taken out together.
//!
//! Source: Linux's proposed `cluster_alloc` (Aaron Lu, "Eliminate zone->lock contention for
//! will-it-scale/page_fault1 and parallel free", linux-mm, October 2018; behaviour). A cluster has
//! its last frame and its number of frames, at most a batch. Each frame has the number of its
//! cluster, or zero if the table had no place for another cluster.

use sync::atomic::{AtomicU32, Ordering};

use super::pages::Pages;
use pagealloc::{LazyTable, MemoryProvider, NoMemory};

/// The words of a cluster. The first is its last frame or, while the cluster is unused, the next
/// unused cluster.
const LAST: usize = 0;
const COUNT: usize = 1;

/// The clusters of a zone. Only the thread that holds the zone's lock alone changes them.
pub(super) struct Clusters {
    table: LazyTable<[AtomicU32; 2]>,
    /// The most frames in a cluster.
    batch: u32,
    /// The first cluster of the list of unused ones that were used before; zero for none.
    unused: u32,
    /// The clusters `1..=used` have been used.
    used: u32,
}

impl Clusters {
    /// Makes a table of unused clusters: as many as `capacity` frames need when all are full.
    ///
    /// # Errors
    /// [`NoMemory`] when the provider has no addresses for the table.
    pub fn new(
        provider: &dyn MemoryProvider,
        capacity: u32,
        batch: u32,
    ) -> Result<Clusters, NoMemory> {
        let table = LazyTable::new(provider, capacity.div_ceil(batch) as usize + 1)?;
        Ok(Clusters { table, batch, unused: 0, used: 0 })
    }

    /// Adds `frame`, which goes in front of `neighbour` in the list, to a cluster.
    #[inline]
    pub fn add(&mut self, pages: &Pages, neighbour: Option<u32>, frame: u32) {
        let found = neighbour.map_or(0, |next| pages.cluster(next).load(Ordering::Relaxed));
        let cluster = if found != 0 && self.count(found) < self.batch {
            self.set(found, COUNT, self.count(found) + 1);
            found
        } else {
            self.open(frame, 1)
        };
        pages.cluster(frame).store(cluster, Ordering::Relaxed);
    }

    /// Removes `frame`, which is behind the frame `before` in the list, from its cluster.
    #[inline]
    pub fn remove(&mut self, pages: &Pages, before: Option<u32>, frame: u32) {
        let cluster = pages.cluster(frame).load(Ordering::Relaxed);
        if cluster == 0 {
            return;
        }
        pages.cluster(frame).store(0, Ordering::Relaxed);
        let count = self.count(cluster) - 1;
        if count == 0 {
            return self.close(cluster);
        }
        self.set(cluster, COUNT, count);
        if let Some(before) = before.filter(|_| self.last(cluster) == frame) {
            self.set(cluster, LAST, before);
        }
    }

    /// Makes a cluster of `count` frames that ends with `last`. Zero if the table is full.
    pub fn open(&mut self, last: u32, count: u32) -> u32 {
        let cluster = if self.unused != 0 {
            let cluster = self.unused;
            self.unused = self.last(cluster);
            cluster
        } else if (self.used as usize) + 1 < self.table.len() {
            self.used += 1;
            self.used
        } else {
            return 0;
        };
        self.set(cluster, LAST, last);
        self.set(cluster, COUNT, count);
        cluster
    }

    /// Frees the cluster, which has no frames left.
    pub fn close(&mut self, cluster: u32) {
        self.set(cluster, LAST, self.unused);
        self.set(cluster, COUNT, 0);
        self.unused = cluster;
    }

    /// The last frame of a cluster.
    #[inline]
    pub fn last(&self, cluster: u32) -> u32 {
        self.table.get(cluster as usize)[LAST].load(Ordering::Relaxed)
    }

    /// The number of frames of a cluster.
    #[inline]
    pub fn count(&self, cluster: u32) -> u32 {
        self.table.get(cluster as usize)[COUNT].load(Ordering::Relaxed)
    }

    /// The number of clusters that have frames.
    pub fn in_use(&self) -> u32 {
        let mut count = self.used;
        let mut unused = self.unused;
        while unused != 0 {
            count -= 1;
            unused = self.last(unused);
        }
        count
    }

    #[inline]
    fn set(&mut self, cluster: u32, word: usize, value: u32) {
        self.table.get(cluster as usize)[word].store(value, Ordering::Relaxed);
    }
}
