//! Transfer time of a line between two CPUs: the price of every contended lock.

use std::thread;
use std::time::Instant;

use anyhow::Result;
use sync::CachePadded;
use sync::atomic::{AtomicU64, Ordering, spin_hint};

use crate::statistics::median;
use crate::threads;

/// Passes in a batch; below, the number of batches.
const PASSES: u64 = 2000;
const BATCHES: u64 = 25;
/// Looks before a thread lets others run: the other thread may have lost its CPU.
const LOOKS: u32 = 10_000;

/// Nanoseconds from one CPU's write to the other's answer, which is half of a round trip: the
/// median of some batches.
pub fn measure(cpus: [usize; 2]) -> Result<f64> {
    let word = CachePadded::new(AtomicU64::new(0));
    let times = threads::on_each(&cpus, Ok, |me| {
        let (me, mut times) = (me as u64, Vec::new());
        for batch in 0..BATCHES {
            let begun = Instant::now();
            for pass in batch * PASSES..(batch + 1) * PASSES {
                let mut looks = 0;
                // Relaxed: only the word itself is passed.
                while word.load(Ordering::Relaxed) != 2 * pass + me {
                    looks += 1;
                    if looks < LOOKS { spin_hint() } else { thread::yield_now() }
                }
                word.store(2 * pass + me + 1, Ordering::Relaxed);
            }
            times.push(begun.elapsed().as_nanos() as f64 / (2 * PASSES) as f64);
        }
        Ok(times)
    })?;
    Ok(median(times.concat()))
}
