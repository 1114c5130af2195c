//! What others have measured, which the simulation is compared with before it says anything: curves
//! of llfree-bench, and the rows of the seed.
//!
//! The curves (`latest-lock` and the bulk runs of llfree-bench; two sockets with 26 cores each,
//! Xeon Gold 5320, one socket used) are given as nanoseconds of a call, for all threads together:
//! a thread's time divided by the threads.

use serde::Serialize;

use super::engine::simulate;
use super::load::{Costs, Demand, Load, Visit};

/// How long a line takes between two cores of one socket, in nanoseconds: 47 to 51 were published
/// for processors of these generations (core-to-core-latency).
pub const SOCKET: f64 = 47.0;
/// Pages moved between a CPU's pcp list and a zone at a time by Linux since 4.19.
pub const BATCH: f64 = 63.0;

/// A point of a curve.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Cores.
    pub cores: usize,
    /// Measured by others.
    pub published_ns: f64,
    /// Simulated.
    pub simulated_ns: f64,
    /// How far that is off.
    pub error_percent: f64,
    /// The simulation was given this point: it says nothing.
    pub given: bool,
    /// Always.
    pub simulated: bool,
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What was measured.
    pub name: &'static str,
    /// How it is simulated.
    pub model: &'static str,
    /// A number was chosen by looking at this curve.
    pub fitted: bool,
    /// Its points.
    pub points: Vec<Point>,
}

impl Curve {
    /// The largest error of points that were not given.
    pub fn worst(&self) -> f64 {
        let errors = self.points.iter().filter(|point| !point.given);
        errors.map(|point| point.error_percent.abs()).fold(0.0, f64::max)
    }
}

/// The points of the table.
const CORES: [usize; 5] = [1, 4, 8, 16, 26];
/// The cores at which the fits of the lock curves are looked at: they hold from two on.
const LOCK_CORES: [usize; 5] = [2, 4, 8, 16, 26];

/// Linux 6.0 as a module, bulk, order 0: nanoseconds of a thread for an allocation and a free.
const BUDDY_ALLOC: [f64; 5] = [94.0, 150.0, 298.0, 598.0, 984.0];
const BUDDY_FREE: [f64; 5] = [90.0, 172.0, 354.0, 731.0, 1241.0];
/// The same with order 9, where each call goes to the zone.
const BUDDY_ALLOC_9: [f64; 5] = [2615.0, 11141.0, 22445.0, 44860.0, 73003.0];
const BUDDY_FREE_9: [f64; 5] = [444.0, 625.0, 1343.0, 2525.0, 4805.0];

/// All curves, simulated.
#[must_use]
pub fn curves(seed: u64) -> Vec<Curve> {
    vec![
        buddy("buddy alloc", BATCH, &BUDDY_ALLOC, seed),
        buddy("buddy free", BATCH, &BUDDY_FREE, seed),
        buddy("buddy alloc, order 9", 1.0, &BUDDY_ALLOC_9, seed),
        buddy("buddy free, order 9", 1.0, &BUDDY_FREE_9, seed),
        list(
            "ListLocked",
            "head: 4 transfers of a line, and 1 for each waiter",
            (106.0, 45.0),
            (4.0 * SOCKET, SOCKET),
            false,
            seed,
        ),
        list(
            "ListCAS",
            "head: 4 transfers of a line, and 1/8 for each waiter",
            (181.0, 6.8),
            (4.0 * SOCKET, SOCKET / 8.0),
            true,
            seed,
        ),
    ]
}

fn load(threads: usize, own: f64) -> Load {
    Load {
        threads,
        pages: BATCH * 40.0,
        frees: false,
        cycles: 3,
        alloc_ns: own,
        free_ns: 0.0,
        memory_ns: 0.0,
        stagger: true,
    }
}

/// Nanoseconds between two calls, of all threads.
fn serial(demand: &Demand, load: &Load, costs: &Costs, seed: u64) -> f64 {
    1e9 / simulate(demand, load, costs, seed).pages_per_s.max(1.0)
}

fn point(cores: usize, published_ns: f64, simulated_ns: f64, given: bool) -> Point {
    let error_percent = 100.0 * (simulated_ns / published_ns - 1.0);
    Point { cores, published_ns, simulated_ns, error_percent, given, simulated: true }
}

/// The zone's lock, full from a few cores on. The time under it comes from the last point, that
/// outside of it from the first; what is between is simulated.
fn buddy(name: &'static str, batch: f64, per_thread: &[f64; 5], seed: u64) -> Curve {
    let costs = Costs::of(SOCKET);
    let last = CORES.len() - 1;
    let in_all = per_thread[last] / CORES[last] as f64;
    let held = (in_all - costs.hand_off / batch).max(0.0);
    let own = (per_thread[0] - held).max(0.0);
    let demand = Demand { alloc: Visit::alone(batch, held), free: Visit::NONE };
    let points = CORES.iter().zip(per_thread).enumerate().map(|(at, (&cores, &ns))| {
        let simulated = serial(&demand, &load(cores, own), &costs, seed);
        point(cores, ns / cores as f64, simulated, at == 0 || at == last)
    });
    Curve { name, model: "lock, first in first out", fitted: false, points: points.collect() }
}

/// A list whose head all want. `published` are a constant and what each core adds.
fn list(
    name: &'static str,
    model: &'static str,
    published: (f64, f64),
    (head_ns, waiter): (f64, f64),
    fitted: bool,
    seed: u64,
) -> Curve {
    let head = Visit { heads: 1.0, head_ns, pages: 1.0, ..Visit::NONE };
    let demand = Demand { alloc: head, free: Visit::NONE };
    let costs = Costs { waiter, ..Costs::of(SOCKET) };
    let points = LOCK_CORES.iter().map(|&cores| {
        let simulated = serial(&demand, &load(cores, 0.0), &costs, seed);
        point(cores, published.0 + published.1 * cores as f64, simulated, false)
    });
    Curve { name, model, fitted, points: points.collect() }
}

/// A row of the seed: 112 threads, two zones, will-it-scale/page_fault1.
#[derive(Clone, Copy, Debug)]
pub struct SeedRow {
    /// What it is called there.
    pub row: &'static str,
    /// Ours of the same kind.
    pub design: &'static str,
    /// Millions of pages in a second.
    pub rate: f64,
    /// Of the time, in percent, waiting for the zone's lock.
    pub lock_percent: f64,
    /// And for heads of lists, where the seed says it.
    pub head_percent: Option<f64>,
    /// What a page needs of the kernel's zone. The times under the lock are those of the reference
    /// notes: chosen for patch 1 (so its rate is given) and no_merge, and the same in all others.
    pub kernel: Demand,
}

const REFILL: Visit = Visit {
    pages: BATCH,
    lockless: 0.0,
    reads: 0.0,
    read_ns: 0.0,
    write_ns: 60.0 + BATCH * 150.0,
    heads: 0.0,
    head_ns: 0.0,
};

const fn drain(write_ns: f64, reads: f64, read_ns: f64, heads: f64) -> Visit {
    Visit { write_ns, reads, read_ns, heads, head_ns: 75.0, ..REFILL }
}

/// The rows, in the order of the seed.
pub const SEED: [SeedRow; 6] = [
    SeedRow {
        row: "patch1",
        design: "spin",
        rate: 9.219_349,
        lock_percent: 76.99,
        head_percent: None,
        kernel: Demand { alloc: REFILL, free: drain(60.0 + BATCH * 62.0, 0.0, 0.0, 0.0) },
    },
    SeedRow {
        row: "patch7",
        design: "rwlock-range",
        rate: 2.461_133,
        lock_percent: 54.46,
        head_percent: Some(34.66),
        kernel: Demand { alloc: REFILL, free: drain(0.0, 1.0, BATCH * 40.0, BATCH) },
    },
    SeedRow {
        row: "patch8",
        design: "splice",
        rate: 11.712_766,
        lock_percent: 68.14,
        head_percent: None,
        kernel: Demand { alloc: REFILL, free: drain(0.0, 1.0, BATCH * 40.0, 4.0) },
    },
    SeedRow {
        row: "patch9",
        design: "premerge",
        rate: 11.386_980,
        lock_percent: 67.18,
        head_percent: None,
        kernel: Demand { alloc: REFILL, free: drain(0.0, 1.0, BATCH * 40.0, 4.0) },
    },
    SeedRow {
        row: "no_merge",
        design: "no-merge",
        rate: 11.733_153,
        lock_percent: 69.18,
        head_percent: None,
        kernel: Demand { alloc: REFILL, free: drain(60.0 + BATCH * 8.0, 0.0, 0.0, 0.0) },
    },
    SeedRow {
        row: "no_merge+cluster_alloc",
        design: "no-merge-cluster",
        rate: 12.094_893,
        lock_percent: 0.73,
        head_percent: None,
        kernel: Demand {
            // The head, the first and the last page of a cluster: three transfers.
            alloc: Visit { write_ns: 60.0 + 3.0 * 80.0, ..REFILL },
            free: drain(60.0 + 3.0 * 80.0, 0.0, 0.0, 0.0),
        },
    },
];

/// What passing things between CPUs took there, after the reference notes.
pub const KERNEL_COSTS: Costs = Costs { hand_off: 80.0, waiter: 46.0 };

/// The load of page_fault1 on one zone of that machine, after the reference notes: own time of a
/// page, and zeroing by a socket's memory, which was chosen so that rows near the cap are there.
#[must_use]
pub fn page_fault1(threads: usize, pages: f64, cycles: u32, stagger: bool) -> Load {
    Load {
        threads,
        pages,
        frees: true,
        cycles,
        alloc_ns: 2200.0,
        free_ns: 400.0,
        memory_ns: 165.0,
        stagger,
    }
}

/// What LLFree needs of what is shared, after its published design and times: no lock; every
/// 2048 frames (8 MiB) a CPU changes its reservation, by two words that others change, too.
pub const LLFREE: Demand = Demand {
    alloc: Visit { pages: 2048.0, heads: 2.0, head_ns: 4.0 * SOCKET, ..Visit::NONE },
    free: Visit::NONE,
};

/// LLFree's own times for a page in userspace, allocating and freeing.
pub const LLFREE_OWN: (f64, f64) = (48.0, 42.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_met_where_they_should_be() {
        for curve in curves(1) {
            assert_eq!(curve.points.len(), 5);
            let given = curve.points.iter().filter(|point| point.given).count();
            assert_eq!(given, if curve.name.starts_with("buddy") { 2 } else { 0 });
            for point in &curve.points {
                let error = 100.0 * (point.simulated_ns / point.published_ns - 1.0);
                assert!((error - point.error_percent).abs() < 1e-9);
                // What was given comes back, but for order 9 at one core: there the lock alone
                // is longer than the published call.
                if point.given && !curve.name.ends_with("order 9") {
                    assert!(point.error_percent.abs() < 3.0, "{}: {point:?}", curve.name);
                }
            }
            assert!(curve.worst() < 30.0, "{curve:?}");
        }
    }

    #[test]
    fn the_seed_is_met_where_the_notes_say_so() {
        let simulated = |row: usize| {
            let load = page_fault1(56, BATCH * 60.0, 2, true);
            simulate(&SEED[row].kernel, &load, &KERNEL_COSTS, 1)
        };
        let rate = |row: usize| 2.0 * simulated(row).pages_per_s / 1e6;
        // The rate of patch 1 was chosen; that of patch 7 was not, and follows.
        assert!((rate(0) / SEED[0].rate - 1.0).abs() < 0.1, "{}", rate(0));
        assert!((rate(1) / SEED[1].rate - 1.0).abs() < 0.35, "{}", rate(1));
        assert!(rate(5) > rate(0), "{}", rate(5));
        assert!(simulated(5).lock_wait_percent() < 3.0);
        assert!(simulated(1).head_wait_percent > 10.0);
    }
}
