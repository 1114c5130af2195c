//! What threads pay for each other on this machine: measured between two CPUs, without the engine.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use sync::atomic::{AtomicU64, Ordering, spin_hint};
use sync::{CachePadded, WaitQueues};

use super::engine::Costs;
use crate::statistics::median;
use crate::threads::on_each;
use crate::zone::ping_pong;

/// Spins before sleeping, as `SPINS` in crates/sync/src/park.rs.
const SPINS: f64 = 40.0;
/// Turns of waking a thread, and how long it has slept then.
const WAKES: u64 = 61;
const ASLEEP: Duration = Duration::from_micros(20);

/// Nanoseconds of each of `count` calls of `job` on this thread: the median of some tries.
fn each(count: u32, mut job: impl FnMut()) -> f64 {
    let tries = (0..15).map(|_| {
        let begun = Instant::now();
        (0..count).for_each(|_| job());
        begun.elapsed().as_nanos() as f64 / f64::from(count)
    });
    median(tries.collect::<Vec<_>>())
}

impl Costs {
    /// Measures between two CPUs.
    pub fn measure(cpus: [usize; 2]) -> Result<Costs> {
        let word = CachePadded::new(AtomicU64::new(0));
        let local_ns = each(10_000, || _ = black_box(word.fetch_add(1, Ordering::Relaxed)));
        let spin_ns = SPINS * each(5_000, spin_hint);
        let transfer_ns = ping_pong::measure(cpus)?.max(local_ns);
        let (waker_ns, latency_ns) = wakes(cpus)?;
        Ok(Costs { local_ns, transfer_ns, spin_ns, waker_ns, latency_ns })
    }
}

/// Nanoseconds that the waker is busy, and then until the sleeper runs, with the product's sleep.
fn wakes(cpus: [usize; 2]) -> Result<(f64, f64)> {
    let (queues, word) = (&WaitQueues::default(), &CachePadded::new(AtomicU64::new(0)));
    let turns = &CachePadded::new(AtomicU64::new(0));
    let woken_at = &AtomicU64::new(0);
    let begin = Instant::now();
    let now = || begin.elapsed().as_nanos() as u64;
    // Acquire pairs with the Release in `pass`: what the other thread did is visible.
    let wait_for = |turn| {
        while turns.load(Ordering::Acquire) != turn {
            spin_hint();
        }
    };
    // Release pairs with the Acquire above.
    let pass = |turn| turns.store(turn, Ordering::Release);
    let times = on_each(&cpus, Ok, |thread| {
        let mut times = Vec::new();
        for turn in 0..WAKES {
            if thread == 1 {
                wait_for(2 * turn + 1);
                queues.lock(word, 0);
                // Relaxed: the turn orders it.
                woken_at.store(now(), Ordering::Relaxed);
                queues.unlock(word, 0, 0);
                pass(2 * turn + 2);
                continue;
            }
            queues.lock(word, 0);
            pass(2 * turn + 1);
            let begun = Instant::now();
            while begun.elapsed() < ASLEEP {
                spin_hint();
            }
            let before = now();
            queues.unlock(word, 0, 0);
            let after = now();
            wait_for(2 * turn + 2);
            let woken = woken_at.load(Ordering::Relaxed);
            times.push(((after - before) as f64, woken.saturating_sub(after) as f64));
        }
        Ok(times)
    })?;
    // The lower quartile: in some tries another program had the sleeper's CPU.
    let quartile = |of: fn(&(f64, f64)) -> f64| {
        let mut times: Vec<f64> = times.iter().flatten().map(of).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 4]
    };
    Ok((quartile(|time| time.0), quartile(|time| time.1)))
}
