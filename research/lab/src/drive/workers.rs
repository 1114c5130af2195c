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

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sync::atomic::{AtomicBool, Ordering};

use super::content::Source;
use super::modes::{Part, Step};
use super::target::Target;
use crate::interrupt;
use crate::sys::{self, Memory};

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

/// Runs all parts at once, each on a thread of its own. The threads take `cpus` in turn.
///
/// # Errors
/// The error of the target, or an interrupt.
pub fn run(parts: &[Part], cpus: &[usize], target: &dyn Target, source: &Source) -> Result<Rate> {
    if cpus.is_empty() {
        bail!("the system does not tell which CPUs there are");
    }
    let block = source.block(0).len();
    let workers = Workers {
        barrier: Barrier::new(parts.len()),
        ended: AtomicBool::new(false),
        target,
        source,
        block,
    };
    let paces = thread::scope(|scope| {
        let workers = &workers;
        let start = |(number, part)| {
            let cpu = cpus[number % cpus.len()];
            scope.spawn(move || workers.work(part, cpu))
        };
        let running: Vec<_> = parts.iter().enumerate().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Pace>>| {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?
        };
        // Joins all threads before it returns the first error: a scope must not end with a panic.
        let paces = running.into_iter().map(join).collect::<Vec<_>>();
        paces.into_iter().collect::<Result<Vec<Pace>>>()
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
    barrier: Barrier,
    ended: AtomicBool,
    target: &'a dyn Target,
    source: &'a Source,
    block: usize,
}

impl Workers<'_> {
    fn work(&self, part: &Part, cpu: usize) -> Result<Pace> {
        let pinned = host::pin_to_cpu(cpu);
        let buffer = Memory::new(self.block);
        self.barrier.wait();
        pinned?;
        let mut buffer = buffer.context("no memory for a buffer")?;
        let (cpu, begun) = (sys::thread_time(), Instant::now());
        let cpu = || sys::thread_time().saturating_sub(cpu);
        let (mut steps, mut pace) = (0, None);
        for _ in 0..part.laps {
            for some in part.steps.chunks(LOOK) {
                interrupt::check()?;
                for step in some {
                    self.step(step, &mut buffer)?;
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
