//! What a thread wants of a zone, and when.

use serde::Serialize;

/// What going to the zone is like, in one phase. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Visit {
    /// Pages for each visit; infinite if there is none.
    pub pages: f64,
    /// Of the visits, the part that takes no lock at all.
    pub lockless: f64,
    /// Of those that take the zone's lock, the part that takes it beside others.
    pub reads: f64,
    /// How long it is held beside others, heads of lists left out.
    pub read_ns: f64,
    /// How long it is held alone.
    pub write_ns: f64,
    /// Heads of lists, or other words that all CPUs change, for each visit.
    pub heads: f64,
    /// How long each, if nobody else wants it.
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

    /// The lock alone, for `held` nanoseconds a page, so many pages at a time.
    #[must_use]
    pub fn alone(pages: f64, held: f64) -> Visit {
        Visit { pages, lockless: 0.0, write_ns: pages * held, ..Visit::NONE }
    }

    /// The lock beside others, with so many heads of lists of `head_ns` each.
    #[must_use]
    pub fn beside(pages: f64, held: f64, heads: f64, head_ns: f64) -> Visit {
        Visit { reads: 1.0, read_ns: pages * held, heads, head_ns, ..Visit::alone(pages, 0.0) }
    }

    /// The same, held longer or shorter.
    #[must_use]
    pub fn times(self, factor: f64) -> Visit {
        Visit { read_ns: self.read_ns * factor, write_ns: self.write_ns * factor, ..self }
    }

    /// Nanoseconds for which one page keeps all others out, passing the lock on included.
    #[must_use]
    pub fn demand(&self, hand_off: f64) -> f64 {
        let writes = (1.0 - self.lockless) * (1.0 - self.reads);
        writes * (self.write_ns + hand_off) / self.pages
    }
}

/// What a page needs of the zone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Demand {
    /// When it is allocated.
    pub alloc: Visit,
    /// When it is freed.
    pub free: Visit,
}

impl Demand {
    /// The same, held longer or shorter.
    #[must_use]
    pub fn times(self, factor: f64) -> Demand {
        Demand { alloc: self.alloc.times(factor), free: self.free.times(factor) }
    }

    /// Nanoseconds for which a page, allocated and freed, has a lock held that keeps others out:
    /// the zone's alone, or the head of a list. No zone gets through more than one page in the
    /// larger of both.
    #[must_use]
    pub fn per_page(&self, hand_off: f64) -> f64 {
        self.alloc.demand(hand_off) + self.free.demand(hand_off)
    }
}

/// What threads do. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Load {
    /// Threads on one zone.
    pub threads: usize,
    /// Pages a thread allocates before it frees them; with `frees` false, after which it goes on.
    pub pages: f64,
    /// Whether it frees.
    pub frees: bool,
    /// Cycles of each thread that count, after one that does not.
    pub cycles: u32,
    /// A thread's own time for a page it has allocated.
    pub alloc_ns: f64,
    /// And for one it frees.
    pub free_ns: f64,
    /// Threads begin at random points of a cycle, not all at once.
    pub stagger: bool,
}

/// What passing things between CPUs takes, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// Passing a lock to who waits for it. Also what a lock costs that another CPU had last.
    pub hand_off: f64,
    /// What each waiter adds to the time of a head of a list, since it looks at the same line.
    pub waiter: f64,
}

impl Costs {
    /// With lines that move in `transfer` nanoseconds.
    #[must_use]
    pub const fn of(transfer: f64) -> Costs {
        Costs { hand_off: transfer, waiter: transfer }
    }
}
