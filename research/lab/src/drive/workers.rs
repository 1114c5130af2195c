//! Runs the threads' parts of a mode at once, and measures the rate.
//!
//! Throughput is counted as in `iozone -t`. All threads begin at a barrier. When the first thread
//! has done its part, the others note their progress. The rate is the work of all threads until
//! then, over the time from the first beginning to the first end. So every counted byte was moved
//! while all threads were at work. Waiting for the last thread would count time without contention,
//! and the mixed workload would measure its writers alone. (iozone divides by each thread's own
//! time. Where threads share a CPU, a thread that has hardly begun when the first one ends would
//! add the speed of a CPU that it did not have.) The threads do the rest of their parts off the
//! clock, so that every mode finds the device as it expects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sync::atomic::{AtomicBool, Ordering};

use super::content::Source;
use super::modes::{Part, Step};
use crate::pages::Target;
use crate::sys::{Memory, memory, thread_time};
use crate::{interrupt, threads};

/// Steps between two checks for an interrupt.
const LOOK: usize = 256;

/// KB/s (1024 bytes) of all threads together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// By the wall clock.
    pub wall: f64,
    /// By the CPU time of each thread: the rate if no other program ran. It contains neither the
    /// sleep until a lock is free nor the work of other processes for the thread.
    pub cpu: f64,
}

/// Runs all parts at once, each on a thread and a CPU of its own.
pub fn run(parts: &[Part], cpus: &[usize], target: &dyn Target, source: &Source) -> Result<Rate> {
    let block = source.block(0).len();
    let workers = Workers { ended: AtomicBool::new(false), target, source, block };
    let prepare = |number| Ok((number, memory(block).context("no memory for a buffer")?));
    let paces = threads::on_each(cpus, prepare, |(number, mut buffer): (usize, Memory)| {
        workers.work(&parts[number], &mut buffer)
    })?;
    let kilobytes = |pace: &Pace| pace.steps as f64 * block as f64 / 1024.0;
    let seconds = |time: Duration| time.as_secs_f64().max(1e-9);
    let begun = paces.iter().map(|pace| pace.begun).min();
    let ended = paces.iter().filter_map(|pace| pace.ended).min();
    let window = ended.zip(begun).map(|(ended, begun)| ended.saturating_duration_since(begun));
    Ok(Rate {
        wall: paces.iter().map(kilobytes).sum::<f64>() / seconds(window.unwrap_or_default()),
        cpu: paces.iter().map(|pace| kilobytes(pace) / seconds(pace.cpu)).sum(),
    })
}

/// The progress of a thread while the clock ran.
struct Pace {
    steps: u64,
    begun: Instant,
    /// The time at which it had done its part, if it saw no other thread end before.
    ended: Option<Instant>,
    /// CPU time of these steps.
    cpu: Duration,
}

struct Workers<'a> {
    ended: AtomicBool,
    target: &'a dyn Target,
    source: &'a Source,
    block: usize,
}

impl Workers<'_> {
    fn work(&self, part: &Part, buffer: &mut [u8]) -> Result<Pace> {
        let (cpu, begun) = (thread_time(), Instant::now());
        let cpu = || thread_time().saturating_sub(cpu);
        let (mut steps, mut pace) = (0, None);
        for _ in 0..part.laps {
            for some in part.steps.chunks(LOOK) {
                interrupt::check()?;
                for step in some {
                    self.step(step, buffer)?;
                    steps += 1;
                    // Relaxed: the flag is alone and publishes nothing.
                    if pace.is_none() && self.ended.load(Ordering::Relaxed) {
                        pace = Some(Pace { steps, begun, ended: None, cpu: cpu() });
                    }
                }
            }
        }
        Ok(pace.unwrap_or_else(|| {
            let ended = Some(Instant::now());
            self.ended.store(true, Ordering::Relaxed);
            Pace { steps, begun, ended, cpu: cpu() }
        }))
    }

    #[inline]
    fn step(&self, step: &Step, buffer: &mut [u8]) -> Result<()> {
        let offset = u64::from(step.place) * self.block as u64;
        if step.source == Step::READ {
            self.target.read(offset, buffer)
        } else {
            self.target.write(offset, self.source.block(step.source as usize))
        }
    }
}
