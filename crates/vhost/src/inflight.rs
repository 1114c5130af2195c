//! The in-flight region: what is under way, in memory that the front end keeps over a crash of this
//! process (the vhost-user document, "Inflight I/O tracking", for split rings).
//!
//! Only this process writes to it, and a later one reads it: after a kill it has the stores in the
//! order in which they were done. Each store that must not come before another one is a `Release`
//! store.

use std::fs::File;
use std::io;
use std::sync::Arc;

use sync::atomic::Ordering::{Relaxed, Release};
use vhost_protocol::vhost_user::message::VhostUserInflight;
use vm_memory::{AtomicAccess, Bytes, MmapRegion, VolatileMemory};

use crate::memory::{invalid, length, map};

/// Fields of the region of a queue, and its length without the entries.
const VERSION: usize = 8;
const ENTRIES: usize = 10;
const LAST: usize = 12;
const USED: usize = 14;
const HEADER: usize = 16;
/// Fields of an entry, and its length.
const NEXT: usize = 6;
const COUNTER: usize = 8;
const ENTRY: usize = 16;
/// Each queue begins with a line of a cache.
const LINE: usize = 64;

/// The region of all queues.
pub(crate) struct Inflight {
    region: Arc<MmapRegion<()>>,
    queues: u16,
    size: u16,
}

/// Bytes of a queue of `size` entries.
fn bytes_of(size: u16) -> usize {
    (HEADER + ENTRY * usize::from(size)).next_multiple_of(LINE)
}

impl Inflight {
    /// A new region for `queues` queues of `size` entries, and its file for the front end.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn make(queues: u16, size: u16) -> io::Result<(VhostUserInflight, File)> {
        let bytes = bytes_of(size) as u64 * u64::from(queues);
        let file = host::Memfds::new().file(bytes)?;
        Ok((VhostUserInflight::new(bytes, 0, queues, size), file))
    }

    /// The region that the front end kept.
    ///
    /// # Errors
    /// `InvalidInput` for one that is no such region, or whose file may become smaller; the error
    /// of the system.
    pub(crate) fn kept(told: &VhostUserInflight, file: File) -> io::Result<Inflight> {
        let VhostUserInflight { mmap_size, mmap_offset, num_queues: queues, queue_size: size } =
            *told;
        let needed = bytes_of(size) as u64 * u64::from(queues);
        if mmap_size < needed {
            let text =
                format!("an in-flight region of {mmap_size} bytes is too short for {needed}");
            return Err(invalid(text));
        }
        let region = Arc::new(map(file, mmap_offset, mmap_size, false)?);
        Ok(Inflight { region, queues, size })
    }

    /// What is under way in queue `number`, which has `size` entries.
    ///
    /// # Errors
    /// `InvalidInput` if there is no such queue in it, or one of another version.
    pub(crate) fn queue(&self, number: usize, size: u16) -> io::Result<UnderWay> {
        if number >= usize::from(self.queues) || size > self.size {
            let text = format!(
                "an in-flight region for {} queues of {} has no queue {number} of {size}",
                self.queues, self.size
            );
            return Err(invalid(text));
        }
        let start = number * bytes_of(self.size);
        let it = UnderWay { region: self.region.clone(), start, size, counter: 0 };
        match it.get::<u16>(VERSION) {
            0 => {
                it.set(ENTRIES, self.size);
                it.set(VERSION, 1u16);
            }
            1 => {}
            other => {
                return Err(invalid(format!("an in-flight region of version {other}, not of 1")));
            }
        }
        Ok(it)
    }
}

/// What is under way in a queue.
pub(crate) struct UnderWay {
    region: Arc<MmapRegion<()>>,
    start: usize,
    size: u16,
    /// The next value for the order of requests.
    counter: u64,
}

impl UnderWay {
    /// A number of the region. It lies inside, so there is no error.
    fn get<T: AtomicAccess + Default>(&self, at: usize) -> T {
        let whole = self.region.get_slice(0, length(&self.region));
        // relaxed: nobody else writes to it.
        whole.and_then(|it| it.load(self.start + at, Relaxed)).unwrap_or_default()
    }

    fn set<T: AtomicAccess>(&self, at: usize, value: T) {
        if let Ok(whole) = self.region.get_slice(0, length(&self.region)) {
            // pairs with: a kill of the process; the next one finds this store after those before.
            let _ = whole.store(value, self.start + at, Release);
        }
    }

    fn entry(head: u16) -> usize {
        HEADER + ENTRY * usize::from(head)
    }

    /// Notes that a request begins.
    pub(crate) fn begin(&mut self, head: u16) {
        let entry = UnderWay::entry(head);
        self.set(entry + COUNTER, self.counter);
        self.counter += 1;
        self.set(entry, 1u8);
    }

    /// Notes that the request is to be in the used ring next.
    pub(crate) fn ends(&self, head: u16) {
        self.set(UnderWay::entry(head) + NEXT, self.get::<u16>(LAST));
        self.set(LAST, head);
    }

    /// Notes that it is there, and `used` requests with it.
    pub(crate) fn ended(&self, head: u16, used: u16) {
        self.set(UnderWay::entry(head), 0u8);
        self.set(USED, used);
    }

    /// The requests that a process before left, the last one first; `used` are in the used ring.
    pub(crate) fn take_over(&mut self, used: u16) -> Vec<u16> {
        // What got into the ring, and could not be noted any more.
        let (mut late, mut last) = (used.wrapping_sub(self.get(USED)), self.get::<u16>(LAST));
        for _ in 0..self.size {
            if late == 0 || last >= self.size {
                break;
            }
            self.set(UnderWay::entry(last), 0u8);
            last = self.get(UnderWay::entry(last) + NEXT);
            late -= 1;
        }
        self.set(USED, used);
        let begun = |head: &u16| self.get::<u8>(UnderWay::entry(*head)) == 1;
        let counter = |head: &u16| self.get::<u64>(UnderWay::entry(*head) + COUNTER);
        let mut heads: Vec<u16> = (0..self.size).filter(begun).collect();
        heads.sort_by_key(|head| std::cmp::Reverse(counter(head)));
        self.counter = heads.first().map_or(0, |head| counter(head).wrapping_add(1));
        heads
    }
}
