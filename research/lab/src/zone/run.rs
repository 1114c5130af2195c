//! The results of the turns of one design in one situation.

use pagealloc::LockClass;
use serde::Serialize;

use super::designs::Design;
use super::lock_stat::{LockStat, LockTimes, Phase, Sum};
use super::picture::Picture;
use super::ticks::Clock;
use super::workers::Tally;
use super::workload::Workload;
use crate::statistics::median;
use crate::zone_sim::load::Visit;

/// The raw results of turns.
#[derive(Default)]
pub struct Gathered {
    /// Nanoseconds of allocations, of frees, and of both: the mean of each turn.
    alloc_ns: Vec<f64>,
    free_ns: Vec<f64>,
    pair_ns: Vec<f64>,
    rates: Vec<f64>,
    pictures: Vec<Picture>,
    /// Heard all turns with a probe.
    probe: Option<LockStat>,
    heard_pages: f64,
    heard_ns: f64,
}

impl Gathered {
    /// Adds a turn without a probe at the locks.
    pub fn timed(&mut self, tallies: &[Tally], picture: Picture) {
        let sum = |of: fn(&Tally) -> f64| tallies.iter().map(of).sum::<f64>();
        let pages = sum(|tally| tally.pages as f64);
        let (alloc, free) = (sum(|tally| tally.alloc_ns), sum(|tally| tally.free_ns));
        // Where pairs are timed, one cannot tell the halves.
        if alloc > 0.0 {
            self.alloc_ns.push(alloc / pages);
            self.free_ns.push(free / pages);
        }
        self.pair_ns.push(sum(Tally::busy_ns) / pages);
        let rate = |tally: &Tally| tally.pages as f64 / tally.busy_ns().max(1.0) * 1e9;
        self.rates.push(tallies.iter().map(rate).sum());
        self.pictures.push(picture);
    }

    /// The probe at the locks of this many threads.
    pub fn probe(&mut self, threads: usize) -> LockStat {
        self.probe.get_or_insert_with(|| LockStat::new(threads)).clone()
    }

    /// Adds a turn with that probe.
    pub fn listened(&mut self, tallies: &[Tally]) {
        self.heard_ns += tallies.iter().map(Tally::busy_ns).sum::<f64>();
        self.heard_pages += tallies.iter().map(|tally| tally.pages as f64).sum::<f64>();
    }

    /// The visits of a phase: a page is allocated in one phase and freed in the other.
    fn visits(&self, locks: &LockTimes, phase: Phase, clock: &Clock) -> Visit {
        let of = |class| locks.of(phase, class);
        let (read, write, head) = (of(LockClass::Read), of(LockClass::Write), of(LockClass::Head));
        let locked = read.taken + write.taken;
        let taken = if locked > 0.0 { locked } else { head.taken };
        let each = |ns: f64, times: f64| if times > 0.0 { ns.max(0.0) / times } else { 0.0 };
        // The mean clips the slowest holds, which the system causes.
        let mean = |sum: &Sum| sum.holds.mean(clock).unwrap_or(0.0);
        if taken == 0.0 {
            return Visit::NONE;
        }
        Visit {
            pages: self.heard_pages / taken,
            lockless: f64::from(u8::from(locked == 0.0)),
            reads: each(read.taken, taken),
            read_ns: (mean(read)
                - each(head.taken, read.taken) * mean(head)
                - each(head.waited_ns, read.taken))
            .max(0.0),
            write_ns: mean(write),
            heads: each(head.taken, taken),
            head_ns: mean(head),
        }
    }
}

/// The results of one design in one situation.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub design: &'static str,
    /// Whether it is only a control.
    pub control: bool,
    /// Number of threads, each on a CPU.
    pub threads: usize,
    pub workload: Workload,
    /// Frames of the zone.
    pub frames: u32,
    /// Frames of each thread in a cycle.
    pub frames_per_thread: usize,
    /// Frames allocated in a second by all threads.
    pub pages_per_s: f64,
    /// Nanoseconds of an allocation, and of a free: the median of the means of turns. Null if both
    /// were timed together.
    pub alloc_ns: Option<f64>,
    pub free_ns: Option<f64>,
    /// Nanoseconds of an allocation and a free.
    pub pair_ns: f64,
    /// The mean of each turn.
    pub pair_ns_samples: Vec<f64>,
    /// Waiting for the zone's lock, in percent of the time of all threads.
    pub lock_wait_percent: f64,
    /// Nanoseconds the zone's lock is held for a page that is allocated and freed again.
    pub lock_held_ns_per_page: f64,
    /// Acquisitions of the zone's lock for such a page.
    pub acquisitions_per_page: f64,
    /// Visits to the zone to allocate, and to free.
    pub alloc_visits: Visit,
    pub free_visits: Visit,
    /// After all was freed and while pcp lists were full: of the last turn, but the median of the
    /// part in blocks of order 0, and the most unmerged buddies.
    #[serde(flatten)]
    pub picture: Picture,
}

impl Run {
    /// Makes the results. `sizes` are threads, frames of the zone and frames of each thread.
    pub fn new(
        design: &'static Design,
        workload: Workload,
        sizes: (usize, u32, usize),
        clock: &Clock,
        gathered: Gathered,
    ) -> Run {
        let shown = &gathered.pictures;
        let picture = Picture {
            order0_share: median(shown.iter().map(|picture| picture.order0_share)),
            unmerged_buddies: shown.iter().map(|it| it.unmerged_buddies).max().unwrap_or(0),
            ..shown.last().cloned().unwrap_or_default()
        };
        let locks = gathered.probe.as_ref().map(|probe| probe.locks(clock)).unwrap_or_default();
        let zone_lock = |of: fn(&Sum) -> f64, whole: f64| {
            let both = |class| of(locks.of(Phase::Alloc, class)) + of(locks.of(Phase::Free, class));
            (both(LockClass::Read) + both(LockClass::Write)) / whole.max(1.0)
        };
        let some = |values: &[f64]| (!values.is_empty()).then(|| median(values.iter().copied()));
        Run {
            design: design.name,
            control: design.control,
            threads: sizes.0,
            workload,
            frames: sizes.1,
            frames_per_thread: sizes.2,
            pages_per_s: median(gathered.rates.iter().copied()),
            alloc_ns: some(&gathered.alloc_ns),
            free_ns: some(&gathered.free_ns),
            pair_ns: median(gathered.pair_ns.iter().copied()),
            pair_ns_samples: gathered.pair_ns.clone(),
            lock_wait_percent: zone_lock(|sum| 100.0 * sum.waited_ns, gathered.heard_ns),
            lock_held_ns_per_page: zone_lock(|sum| sum.held_ns, gathered.heard_pages),
            acquisitions_per_page: zone_lock(|sum| sum.taken, gathered.heard_pages),
            alloc_visits: gathered.visits(&locks, Phase::Alloc, clock),
            free_visits: gathered.visits(&locks, Phase::Free, clock),
            picture,
        }
    }
}
