//! The demand of a thread on a zone, and its times.

use serde::Serialize;

/// The visits to the zone in one phase. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Visit {
    /// Pages for each visit. Infinite if there are no visits.
    pub pages: f64,
    /// The part of the visits that take no lock.
    pub lockless: f64,
    /// Of the visits that take the zone's lock, the part that share it.
    pub reads: f64,
    /// Time of a shared hold, without heads of lists.
    pub read_ns: f64,
    /// Time of an exclusive hold.
    pub write_ns: f64,
    /// Heads of lists, or other words that all CPUs change, for each visit.
    pub heads: f64,
    /// Time of a head without contention.
    pub head_ns: f64,
}

impl Visit {
    /// No visits.
    pub const NONE: Visit = Visit {
        pages: f64::INFINITY,
        lockless: 1.0,
        reads: 0.0,
        read_ns: 0.0,
        write_ns: 0.0,
        heads: 0.0,
        head_ns: 0.0,
    };

    /// The exclusive lock, held for `held` nanoseconds a page, for `pages` pages at a time.
    pub fn alone(pages: f64, held: f64) -> Visit {
        Visit { pages, lockless: 0.0, write_ns: pages * held, ..Visit::NONE }
    }

    /// The same visits with hold times multiplied by `factor`.
    pub fn times(self, factor: f64) -> Visit {
        Visit { read_ns: self.read_ns * factor, write_ns: self.write_ns * factor, ..self }
    }

    /// Nanoseconds for which one page keeps all other threads out, including the hand-off.
    pub fn demand(&self, hand_off: f64) -> f64 {
        let writes = (1.0 - self.lockless) * (1.0 - self.reads);
        writes * (self.write_ns + hand_off) / self.pages
    }
}

/// The demand of a page on the zone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Demand {
    /// The visits to allocate it.
    pub alloc: Visit,
    /// The visits to free it.
    pub free: Visit,
}

impl Demand {
    /// The same demand with hold times multiplied by `factor`.
    pub fn times(self, factor: f64) -> Demand {
        Demand { alloc: self.alloc.times(factor), free: self.free.times(factor) }
    }

    /// Nanoseconds for which a page, allocated and freed, holds a lock that keeps others out: the
    /// exclusive zone lock, or the head of a list. A zone cannot serve more than one page in the
    /// larger of both.
    pub fn per_page(&self, hand_off: f64) -> f64 {
        self.alloc.demand(hand_off) + self.free.demand(hand_off)
    }
}

/// The load of the threads. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Load {
    /// Threads on one zone.
    pub threads: usize,
    /// Pages that a thread allocates before it frees them. With `frees` false, the end of a cycle.
    pub pages: f64,
    /// Whether the threads free.
    pub frees: bool,
    /// Cycles of each thread that count, after one that does not.
    pub cycles: u32,
    /// A thread's own time for a page it allocates.
    pub alloc_ns: f64,
    /// A thread's own time for a page it frees.
    pub free_ns: f64,
    /// Whether threads begin at random points of a cycle, and not all at once.
    pub stagger: bool,
}
