//! The costs of lines and waiting on this machine: two threads on two CPUs, without the engine.
//!
//! One thread prepares lines; the other uses them and is timed. They take turns by a flag. Each
//! time is the median of many, which leaves out disturbed ones.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use sync::atomic::{AtomicU64, Ordering, spin_hint};
use sync::{CachePadded, WaitQueues};

use crate::sim::lines::{Costs, Wake};
use crate::statistics::median;
use crate::threads::on_each;

/// Lines used one by one in a turn.
const SINGLE: usize = 16;
/// Number of lines to choose from.
const POOL: usize = 256;
/// Lines in a row.
const ROW: usize = 32;
const WORDS: usize = 8;
/// The bit of a word at which the next line's number begins.
const LINK: u32 = 32;
const TURNS: u64 = 1500;
const WAKES: u64 = 61;
/// Nanoseconds that sleepers wait. A thread that has slept for a moment only is woken sooner than a
/// thread whose CPU has gone idle.
const WAITS: [u64; 6] = [1_000, 2_000, 4_000, 10_000, 25_000, 80_000];

/// The measured costs, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Primitives {
    /// Reading the clock. It is subtracted from everything else.
    pub clock_ns: f64,
    /// A read-modify-write of a line that the other CPU changed and this CPU then read, without the
    /// read.
    pub rmw_after_read_ns: f64,
    /// Reading a line that this CPU has changed and the other has read since. It shows whether
    /// lines move to their reader.
    pub reread_ns: f64,
    /// The costs for the simulation. Those of waking sleepers are lower quartiles.
    #[serde(flatten)]
    pub costs: Costs,
}

/// The data that both threads use.
struct Field {
    lines: Vec<CachePadded<AtomicU64>>,
    /// The lines, in an order that no prefetcher guesses.
    order: Vec<usize>,
    row: Box<[[AtomicU64; WORDS]]>,
    /// Odd in the second thread's turn.
    turn: CachePadded<AtomicU64>,
}

impl Field {
    fn new() -> Field {
        let mut order: Vec<usize> = (0..POOL).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        order.truncate(SINGLE);
        let word = |_| AtomicU64::new(0);
        let field = Field {
            lines: (0..POOL).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            order,
            row: (0..ROW).map(|_| std::array::from_fn(word)).collect(),
            turn: CachePadded::new(AtomicU64::new(0)),
        };
        field.link_each();
        field
    }

    // Relaxed throughout: the turn orders both threads, and the values mean nothing.

    /// Changes each line. The upper half of each word names the next line, so that the processor
    /// cannot request several lines at once.
    fn change_each(&self) {
        let mut at = self.order[0];
        for _ in 0..SINGLE {
            at = (self.lines[at].fetch_add(1, Ordering::Relaxed) >> LINK) as usize;
        }
        black_box(at);
    }

    /// Reads each line first, then changes it, as `change_each` does.
    fn look_and_change_each(&self) {
        let mut at = self.order[0];
        for _ in 0..SINGLE {
            let seen = self.lines[at].load(Ordering::Relaxed);
            let line = (seen >> LINK) as usize;
            // As a lock is taken: by compare-and-swap, from the value read before.
            let swapped = self.lines[at].compare_exchange(
                seen,
                seen + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            at = swapped.map_or(line, |was| (was >> LINK) as usize);
        }
        black_box(at);
    }

    /// Writes into each line the number of the next one.
    fn link_each(&self) {
        for pair in self.order.windows(2) {
            self.lines[pair[0]].store((pair[1] as u64) << LINK, Ordering::Relaxed);
        }
    }

    /// Reads each line; each word names the next line.
    fn follow(&self) {
        let mut at = self.order[0];
        for _ in 1..SINGLE {
            at = (self.lines[at].load(Ordering::Relaxed) >> LINK) as usize;
        }
        black_box(at);
    }

    fn write_row(&self) {
        for word in self.row.iter().flatten() {
            word.store(1, Ordering::Relaxed);
        }
    }

    fn read_row(&self) {
        let lines = self.row.iter().map(|line| line[0].load(Ordering::Relaxed));
        black_box(lines.sum::<u64>());
    }

    fn wait_for(&self, turn: u64) {
        // Acquire pairs with the Release in `pass`: the other thread's work is visible.
        while self.turn.load(Ordering::Acquire) != turn {
            spin_hint();
        }
    }

    fn pass(&self, turn: u64) {
        // Release pairs with the Acquire in `wait_for`.
        self.turn.store(turn, Ordering::Release);
    }
}

/// Lets `first` prepare and `second` be timed, in turns, on two CPUs. After each turn the timed
/// thread does `after`. Returns the median in nanoseconds.
fn duel(
    cpus: [usize; 2],
    clock: f64,
    first: impl Fn(&Field) + Sync,
    second: impl Fn(&Field) + Sync,
    after: impl Fn(&Field) + Sync,
) -> Result<f64> {
    let field = &Field::new();
    let times = on_each(&cpus, Ok, |thread| {
        let mut times = Vec::new();
        if thread == 0 {
            for turn in 0..TURNS {
                field.wait_for(2 * turn);
                first(field);
                field.pass(2 * turn + 1);
            }
            return Ok(times);
        }
        let mine = CachePadded::new(AtomicU64::new(0));
        for turn in 0..TURNS {
            field.wait_for(2 * turn + 1);
            let begun = Instant::now();
            second(field);
            // On x86 this waits until all writes have arrived. Relaxed: only this thread uses it.
            mine.fetch_add(1, Ordering::Relaxed);
            times.push(begun.elapsed().as_nanos() as f64);
            after(field);
            field.pass(2 * turn + 2);
        }
        Ok(times)
    })?;
    let times = times.into_iter().flatten();
    Ok((median(times) - clock).max(0.0))
}

/// Nanoseconds of each of `count` calls of `job` on this thread: the median of some tries.
pub fn each(count: u32, mut job: impl FnMut(u32)) -> f64 {
    let tries = (0..15).map(|_| {
        let begun = Instant::now();
        (0..count).for_each(&mut job);
        begun.elapsed().as_nanos() as f64 / f64::from(count)
    });
    median(tries.collect::<Vec<_>>())
}

impl Primitives {
    /// Measures between two CPUs.
    pub fn measure(cpus: [usize; 2]) -> Result<Primitives> {
        let clocks = (0..1000).map(|_| Instant::now().elapsed().as_nanos() as f64);
        let clock = median(clocks.collect::<Vec<_>>());
        let word = CachePadded::new(AtomicU64::new(0));
        let local = each(10_000, |_| {
            word.fetch_add(1, Ordering::Relaxed);
        });
        let pause = each(5_000, |_| spin_hint());
        // getpid(2): sched_yield would let other threads run.
        let system_call = each(1000, |_| {
            black_box(std::process::id());
        });
        let single = SINGLE as f64;
        // The last instruction of each turn is a local one.
        let clock_and_one = clock + local;
        let pair = |first: fn(&Field), second: fn(&Field)| {
            duel(cpus, clock_and_one, first, second, |_| {})
        };
        let remote = pair(Field::change_each, Field::change_each)? / single;
        let shared = pair(Field::look_at_each, Field::change_each)? / single;
        let read = pair(Field::link_each, Field::follow)? / (single - 1.0);
        let read_row = pair(Field::write_row, Field::read_row)? / ROW as f64;
        let write_row = pair(Field::write_row, Field::write_row)? / ROW as f64;
        let both = pair(Field::change_each, Field::look_and_change_each)? / single;
        let reread =
            duel(cpus, clock_and_one, Field::look_at_each, Field::follow, Field::change_each)?
                / (single - 1.0);
        let mut woken = Vec::new();
        for wait in WAITS {
            let (waker, latency) = wakes(cpus, Duration::from_nanos(wait))?;
            woken.push(Wake {
                asleep_ns: (wait as f64 - f64::from(Costs::SPINS) * pause).max(0.0),
                waker_ns: (waker - clock - system_call).max(0.0),
                latency_ns: latency.max(0.0),
            });
        }
        let costs = Costs {
            local,
            take: remote.max(local),
            upgrade: shared.max(local),
            reading_moves: reread > read / 2.0,
            read,
            read_in_row: read_row,
            write_in_row: write_row,
            pause: pause.max(1.0),
            spins: Costs::SPINS,
            system_call,
            wakes: woken,
        };
        let rmw_after_read_ns = (both - read).max(local);
        Ok(Primitives { clock_ns: clock, rmw_after_read_ns, reread_ns: reread, costs })
    }
}

impl Field {
    /// Reads each line, so that both CPUs hold it.
    fn look_at_each(&self) {
        for &line in &self.order {
            black_box(self.lines[line].load(Ordering::Relaxed));
        }
    }
}

/// Nanoseconds that the waker is busy, and then until the sleeper runs, with the product's sleep.
fn wakes(cpus: [usize; 2], wait: Duration) -> Result<(f64, f64)> {
    let (queues, word) = (&WaitQueues::default(), &CachePadded::new(AtomicU64::new(0)));
    let field = &Field::new();
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    let woken_at = &AtomicU64::new(0);
    let times = on_each(&cpus, Ok, |thread| {
        let mut times = Vec::new();
        for turn in 0..WAKES {
            if thread == 1 {
                field.wait_for(2 * turn + 1);
                queues.lock(word, 0);
                // Relaxed: the turn orders it.
                woken_at.store(now(), Ordering::Relaxed);
                queues.unlock(word, 0, 0);
                field.pass(2 * turn + 2);
                continue;
            }
            queues.lock(word, 0);
            field.pass(2 * turn + 1);
            let begun = Instant::now();
            while begun.elapsed() < wait {
                spin_hint();
            }
            let before = now();
            queues.unlock(word, 0, 0);
            let after = now();
            field.wait_for(2 * turn + 2);
            let woken = woken_at.load(Ordering::Relaxed);
            times.push(((after - before) as f64, woken as f64 - after as f64));
        }
        Ok(times)
    })?;
    let times: Vec<(f64, f64)> = times.into_iter().flatten().collect();
    // The lower quartile: in some tries another program had the sleeper's CPU.
    let quartile = |of: fn(&(f64, f64)) -> f64| {
        let mut times: Vec<f64> = times.iter().map(of).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 4]
    };
    Ok((quartile(|time| time.0), quartile(|time| time.1)))
}
