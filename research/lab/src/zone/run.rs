//! The results of the turns of one design in one situation.

use pagealloc::LockClass;
use serde::Serialize;

use super::designs::Design;
use super::histogram::Histogram;
use super::lock_stat::{LockTimes, Phase, Sum};
use super::meter::Sampler;
use super::mode::Mode;
use super::picture::Picture;
use super::ticks::Clock;
use super::workers::{Blocks, Tally};
use super::workload::{Start, Workload};
use crate::statistics::median;

/// The raw results of turns.
#[derive(Default)]
pub struct Gathered {
    alloc_ns: Vec<f64>,
    free_ns: Vec<f64>,
    pair_ns: Vec<f64>,
    rates: Vec<f64>,
    pictures: Vec<[Picture; 3]>,
    alloc: Histogram,
    free: Histogram,
    blocks: Blocks,
    at_rest: Blocks,
    locks: Option<LockTimes>,
    heard_pages: f64,
    heard_ns: f64,
    wait_percent: Vec<f64>,
}

fn over(ns: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| ns / count as f64)
}

impl Gathered {
    /// Adds a turn without a probe at the locks.
    pub fn timed(&mut self, tallies: &[Tally], pictures: [Picture; 3]) {
        let sum = |of: fn(&Tally) -> f64| tallies.iter().map(of).sum::<f64>();
        let count = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
        self.alloc_ns.extend(over(sum(|t| t.alloc_ns), count(|t| t.allocs)));
        self.free_ns.extend(over(sum(|t| t.free_ns), count(|t| t.frees)));
        self.pair_ns.extend(over(sum(|t| t.pair_ns), count(|t| t.pairs)));
        let rate = |tally: &Tally| tally.pages() / tally.busy_ns().max(1.0) * 1e9;
        self.rates.push(tallies.iter().map(rate).sum());
        for tally in tallies {
            self.blocks.merge(&tally.blocks);
        }
        self.pictures.push(pictures);
    }

    /// Adds a turn in which each call was timed.
    pub fn sampled(&mut self, meters: &[Sampler], at_rest: Option<Blocks>) {
        for meter in meters {
            self.alloc.merge(&meter.alloc);
            self.free.merge(&meter.free);
        }
        if let Some(blocks) = at_rest {
            self.at_rest.merge(&blocks);
        }
    }

    /// Adds a turn with a probe at the locks.
    pub fn listened(&mut self, locks: &LockTimes, tallies: &[Tally]) {
        let busy: f64 = tallies.iter().map(Tally::busy_ns).sum();
        let waited =
            locks.class(LockClass::Read).waited_ns + locks.class(LockClass::Write).waited_ns;
        self.wait_percent.push(100.0 * waited / busy.max(1.0));
        self.heard_ns += busy;
        self.heard_pages += tallies.iter().map(Tally::pages).sum::<f64>();
        self.locks.get_or_insert_default().merge(locks);
    }
}

/// Percentiles of single calls, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Percentiles {
    fn of(histogram: &Histogram, clock: &Clock) -> Option<Percentiles> {
        let (p50, p99) = (histogram.quantile(clock, 0.5)?, histogram.quantile(clock, 0.99)?);
        Some(Percentiles { p50, p99 })
    }
}

/// The figures of a lock class.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AtLock {
    /// Waiting, in percent of the time of all threads.
    pub wait_percent: f64,
    /// Nanoseconds held for each page that is allocated and freed again.
    pub held_ns_per_page: f64,
    /// Acquisitions for each page that is allocated and freed again.
    pub acquisitions_per_page: f64,
    /// Acquisitions that had to wait, in percent.
    pub contended_percent: f64,
    /// Mean time of a hold, in nanoseconds.
    pub hold_mean_ns: f64,
    /// 99th percentile of a hold, in nanoseconds.
    pub hold_p99_ns: f64,
}

/// The figures of each lock class.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gates {
    /// The zone's lock, shared.
    pub read: AtLock,
    /// The zone's lock, exclusive.
    pub write: AtLock,
    /// Heads of lists, inside the shared zone lock.
    pub head: AtLock,
    /// Locks of ranges.
    pub range: AtLock,
}

/// The visits to the zone in one phase, for the simulation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Visits {
    /// Pages for each acquisition of the zone's lock or, if it was never taken, of the head of a
    /// list. `None` if neither was taken.
    pub pages: Option<f64>,
    /// Whether the zone's lock was never taken.
    pub lockless: bool,
    /// The part of the acquisitions that were shared.
    pub reads: f64,
    /// Nanoseconds of a shared hold, without heads of lists.
    pub read_ns: f64,
    /// Nanoseconds of an exclusive hold.
    pub write_ns: f64,
    /// Heads of lists taken in each visit.
    pub heads: f64,
    /// Nanoseconds that a head is held.
    pub head_ns: f64,
}

/// Requests for blocks of 2 MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Order9 {
    /// Number of requests. Each had enough free memory.
    pub ideal: u64,
    /// Number of successful requests.
    pub obtained: u64,
    /// The part of successful requests.
    pub success: f64,
    /// Times of all requests, successful or not.
    pub alloc: Option<Percentiles>,
}

impl Order9 {
    fn of(blocks: &Blocks, clock: &Clock) -> Option<Order9> {
        (blocks.asked > 0).then(|| Order9 {
            ideal: blocks.asked,
            obtained: blocks.obtained,
            success: blocks.obtained as f64 / blocks.asked as f64,
            alloc: Percentiles::of(&blocks.alloc, clock),
        })
    }
}

/// Free memory at three moments.
#[derive(Clone, Debug, Serialize)]
pub struct Moments<T> {
    /// After half of the allocated frames were freed.
    pub live: T,
    /// After all were freed, while pcp lists were still full.
    pub before_drain: T,
    /// After pcp lists were emptied.
    pub after_drain: T,
}

impl<T> Moments<T> {
    fn of<'a>(pictures: &'a [Picture; 3], of: impl Fn(&'a Picture) -> T) -> Moments<T> {
        let [live, before, after] = pictures;
        Moments { live: of(live), before_drain: of(before), after_drain: of(after) }
    }
}

/// The results of one design in one situation.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The design.
    pub design: &'static str,
    /// Whether it is only a control.
    pub control: bool,
    /// Number of threads, each on a CPU.
    pub threads: usize,
    /// The workload.
    pub workload: Workload,
    /// The use of each frame.
    pub mode: String,
    /// The start of the threads.
    pub start: Start,
    /// Frames of the zone.
    pub frames: u32,
    /// Frames of each thread in a cycle.
    pub frames_per_thread: usize,
    /// Number of timed turns.
    pub rounds: usize,
    /// Frames allocated in a second by all threads.
    pub pages_per_s: f64,
    /// Frames allocated and frames freed in a second.
    pub operations_per_s: f64,
    /// Nanoseconds of an allocation: the median of the means of turns.
    pub alloc_ns: f64,
    /// Nanoseconds of a free.
    pub free_ns: f64,
    /// Nanoseconds of an allocation and a free.
    pub pair_ns: f64,
    /// The interval in which the median of pairs lies with 95 % confidence.
    pub pair_ns_interval: [f64; 2],
    /// The mean of each turn.
    pub pair_ns_samples: Vec<f64>,
    /// Percentiles of single allocations.
    pub alloc_percentiles: Option<Percentiles>,
    /// Percentiles of single frees.
    pub free_percentiles: Option<Percentiles>,
    /// Waiting for the zone's lock, in percent of the time of all threads. Null, as all other lock
    /// figures, if the design has no probe.
    pub lock_wait_percent: Option<f64>,
    /// Nanoseconds the zone's lock is held for a page that is allocated and freed again.
    pub lock_held_ns_per_page: Option<f64>,
    /// Acquisitions of the zone's lock for such a page.
    pub acquisitions_per_page: Option<f64>,
    /// The figures of each lock class.
    pub lock_classes: Option<Gates>,
    /// Visits to the zone to allocate.
    pub alloc_visits: Option<Visits>,
    /// Visits to the zone to free.
    pub free_visits: Option<Visits>,
    /// The part of free memory in blocks of order 0, after all was freed and while pcp lists were
    /// full: the median. Null if the design does not show its free blocks.
    pub order0_share: Option<f64>,
    /// Free buddies that were not merged at that moment: the most of any turn.
    pub unmerged_buddies: Option<u64>,
    /// Free blocks by order, of the last turn.
    pub buddyinfo: Option<Moments<[u64; 11]>>,
    /// The unusable-free index of each order, of the last turn.
    pub unusable_free_index: Option<Moments<[f64; 11]>>,
    /// `order0_share` at other moments, of the last turn.
    pub order0_shares: Option<Moments<f64>>,
    /// `unmerged_buddies` at other moments, of the last turn.
    pub unmerged: Option<Moments<u64>>,
    /// Requests of the workload for blocks of 2 MiB.
    pub order9: Option<Order9>,
    /// Requests for blocks after everything was freed, while pcp lists were still full.
    pub order9_at_rest: Option<Order9>,
}

/// Ranks between which the median of a population lies with 95 % confidence.
fn interval(values: &[f64]) -> [f64; 2] {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let half = 0.98 * count.sqrt();
    let rank = |rank: f64| (rank.max(0.0) as usize).min(values.len().saturating_sub(1));
    let (low, high) = (rank((count / 2.0 - half).floor()), rank((count / 2.0 + half).ceil()));
    match values.len() {
        0 => [0.0; 2],
        _ => [values[low], values[high]],
    }
}

impl Run {
    /// Makes the results. `sizes` are threads, frames of the zone and frames of each thread.
    pub fn new(
        design: &'static Design,
        workload: Workload,
        mode: Mode,
        start: Start,
        sizes: (usize, u32, usize),
        clock: &Clock,
        gathered: Gathered,
    ) -> Run {
        let Gathered { alloc, free, pictures, .. } = &gathered;
        let pairs: Vec<f64> = match gathered.pair_ns.is_empty() {
            true => gathered.alloc_ns.iter().zip(&gathered.free_ns).map(|(a, f)| a + f).collect(),
            false => gathered.pair_ns.clone(),
        };
        let pair_ns = median(pairs.iter().copied());
        let (alloc_ns, free_ns) = match gathered.pair_ns.is_empty() {
            true => (median(gathered.alloc_ns.clone()), median(gathered.free_ns.clone())),
            // Only pairs were timed. Single calls give the shares of allocation and free.
            false => {
                let means = (alloc.mean(clock), free.mean(clock));
                let (a, f) = (means.0.unwrap_or(1.0), means.1.unwrap_or(1.0));
                let part = if a + f > 0.0 { a / (a + f) } else { 0.5 };
                (pair_ns * part, pair_ns * (1.0 - part))
            }
        };
        let shown = if design.shows_free { pictures.as_slice() } else { &[] };
        let last = shown.last();
        let locks = gathered.locks.as_ref();
        let pages_per_s = median(gathered.rates.clone());
        let zone_lock = |of: fn(&AtLock) -> f64| {
            gathered
                .lock_classes()
                .map(|lock_classes| of(&lock_classes.read) + of(&lock_classes.write))
        };
        Run {
            design: design.name,
            control: design.control,
            threads: sizes.0,
            workload,
            mode: mode.to_string(),
            start,
            frames: sizes.1,
            frames_per_thread: sizes.2,
            rounds: gathered.rates.len(),
            pages_per_s,
            operations_per_s: 2.0 * pages_per_s,
            alloc_ns,
            free_ns,
            pair_ns,
            pair_ns_interval: interval(&pairs),
            pair_ns_samples: pairs,
            alloc_percentiles: Percentiles::of(alloc, clock),
            free_percentiles: Percentiles::of(free, clock),
            lock_wait_percent: locks.map(|_| median(gathered.wait_percent.clone())),
            lock_held_ns_per_page: zone_lock(|class| class.held_ns_per_page),
            acquisitions_per_page: zone_lock(|class| class.acquisitions_per_page),
            lock_classes: gathered
                .lock_classes()
                .map(|lock_classes| lock_classes.with_p99(&gathered, clock)),
            alloc_visits: locks.map(|locks| gathered.visits(locks, Phase::Alloc, clock)),
            free_visits: locks.map(|locks| gathered.visits(locks, Phase::Free, clock)),
            order0_share: last.map(|_| median(shown.iter().map(|three| three[1].order0_share))),
            unmerged_buddies: shown.iter().map(|three| three[1].unmerged_buddies).max(),
            buddyinfo: last.map(|three| Moments::of(three, |picture| picture.buddyinfo)),
            unusable_free_index: last
                .map(|three| Moments::of(three, |picture| picture.unusable_free_index)),
            order0_shares: last.map(|three| Moments::of(three, |picture| picture.order0_share)),
            unmerged: last.map(|three| Moments::of(three, |picture| picture.unmerged_buddies)),
            order9: Order9::of(&gathered.blocks, clock),
            order9_at_rest: Order9::of(&gathered.at_rest, clock),
        }
    }
}

impl Gathered {
    fn class(&self, locks: &LockTimes, class: LockClass) -> AtLock {
        let sum = locks.class(class);
        let (pages, ns) = (self.heard_pages.max(1.0), self.heard_ns.max(1.0));
        let taken = sum.taken.max(1.0);
        AtLock {
            wait_percent: 100.0 * sum.waited_ns / ns,
            held_ns_per_page: sum.held_ns / pages,
            acquisitions_per_page: sum.taken / pages,
            contended_percent: 100.0 * sum.shut / taken,
            hold_mean_ns: sum.held_ns / taken,
            hold_p99_ns: 0.0,
        }
    }

    fn lock_classes(&self) -> Option<Gates> {
        let locks = self.locks.as_ref()?;
        Some(Gates {
            read: self.class(locks, LockClass::Read),
            write: self.class(locks, LockClass::Write),
            head: self.class(locks, LockClass::Head),
            range: self.class(locks, LockClass::Range),
        })
    }

    /// The visits of a phase: a page is allocated in one phase and freed in the other.
    fn visits(&self, locks: &LockTimes, phase: Phase, clock: &Clock) -> Visits {
        let of = |class| locks.of(phase, class);
        let (read, write, head) = (of(LockClass::Read), of(LockClass::Write), of(LockClass::Head));
        let locked = read.taken + write.taken;
        let taken = if locked > 0.0 { locked } else { head.taken };
        let each = |ns: f64, times: f64| if times > 0.0 { ns.max(0.0) / times } else { 0.0 };
        // The mean clips the slowest holds, which the system causes.
        let mean = |sum: &Sum| sum.holds.mean(clock).unwrap_or(0.0);
        Visits {
            pages: (taken > 0.0).then(|| self.heard_pages / taken),
            lockless: locked == 0.0,
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

impl Gates {
    fn with_p99(mut self, gathered: &Gathered, clock: &Clock) -> Gates {
        let Some(locks) = &gathered.locks else { return self };
        for (class, at) in LockClass::ALL.into_iter().zip([
            &mut self.read,
            &mut self.write,
            &mut self.head,
            &mut self.range,
        ]) {
            at.hold_p99_ns = locks.class(class).holds.quantile(clock, 0.99).unwrap_or(0.0);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_have_intervals() {
        assert_eq!(interval(&[]), [0.0; 2]);
        assert_eq!(interval(&[3.0]), [3.0; 2]);
        let values: Vec<f64> = (1..=11).rev().map(f64::from).collect();
        let [low, high] = interval(&values);
        assert!(low < 6.0 && high > 6.0 && low >= 1.0 && high <= 11.0, "{low} {high}");
    }
}
