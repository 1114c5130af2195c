//! Clusters: runs of neighbours in the list of single frames that are taken out together.
//!
//! As in Linux's proposed `cluster_alloc` (Aaron Lu, "Eliminate zone->lock contention for will-it-
//! scale/page_fault1 and parallel free", linux-mm, October 2018; behaviour): a cluster knows its
//! last frame and how many it has, at most a batch; each frame knows its cluster, or that it has
//! none because there was no place for another one.

use sync::atomic::{AtomicU32, Ordering};

use super::pages::Pages;
use pagealloc::{LazyTable, MemoryProvider, NoMemory};

/// Which word of a cluster is what: its last frame or, while it is unused, the next unused one.
const LAST: usize = 0;
const COUNT: usize = 1;

/// The clusters of a zone. They are changed only by who holds the zone's lock alone.
pub(super) struct Clusters {
    table: LazyTable<[AtomicU32; 2]>,
    /// The most frames in one.
    batch: u32,
    /// The first of those that were used and are not now; zero for none.
    unused: u32,
    /// Those that were used once: `1..=used`.
    used: u32,
}

impl Clusters {
    /// As many as full ones would be needed for `capacity` frames, none of them used.
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

    /// `frame` goes in front of `neighbour` in the list.
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

    /// `frame`, which is behind the frame `before` in the list, leaves it.
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

    /// A new cluster of `count` frames with `last` at its end; zero if there is no place for it.
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

    /// The cluster has no frames any more.
    pub fn close(&mut self, cluster: u32) {
        self.set(cluster, LAST, self.unused);
        self.set(cluster, COUNT, 0);
        self.unused = cluster;
    }

    /// Its last frame.
    #[inline]
    pub fn last(&self, cluster: u32) -> u32 {
        self.table.get(cluster as usize)[LAST].load(Ordering::Relaxed)
    }

    /// How many frames it has.
    #[inline]
    pub fn count(&self, cluster: u32) -> u32 {
        self.table.get(cluster as usize)[COUNT].load(Ordering::Relaxed)
    }

    /// How many clusters have frames.
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
