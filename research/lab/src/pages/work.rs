//! The work: every page is stored, stored again, loaded, and loaded again, by threads that each
//! stay on a CPU.
//!
//! All targets take the pages in one shuffled order. Each thread has an equal share of it and times
//! its own share. With churn, the first store writes to each place the page that is half of the
//! order away. Then the second store changes the size of every object, and the pages found at the
//! end can only be those of the second store.
//!
//! The first load is verified. It loads 64 pages, then stops the clock and compares them with the
//! stored pages. The second load has no such interruptions, which would push its data out of the
//! caches.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use sync::atomic::{AtomicU64, Ordering};
use units::PAGE_SIZE;

use super::target::Target;
use crate::page::page;
use crate::sys::{self, memory};
use crate::{interrupt, threads};

/// Pages loaded before the clock stops for comparing.
pub const CHUNK: usize = 64;
/// The seed of the order of pages.
const SEED: u64 = 0x7261_6d70_6163_6b00;

/// Pages, an order and threads.
pub struct Work<'a> {
    corpus: &'a [u8],
    order: Vec<u32>,
    /// The same order, beginning in the middle.
    others: Vec<u32>,
    /// The pages of a request: that many, one behind the other in the order and the corpus.
    run: usize,
    churn: bool,
    cpus: Vec<usize>,
}

/// The speed of a pass.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Debug)]
pub struct Speed {
    /// Nanoseconds for a page: a thread's time over its pages, mean of the threads.
    pub ns_per_page: f64,
    /// Megabytes (10^6 bytes) a second of all threads together, until the last one ended.
    pub mb_per_s: f64,
    /// Nanoseconds of CPU time for a page, mean of the threads; `None` where it was not measured.
    #[serde(skip)]
    pub cpu_ns_per_page: Option<f64>,
}

/// The time of a thread.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Taken {
    wall: Duration,
    cpu: Option<Duration>,
}

/// Runs `job` and returns its time.
pub fn clock(job: impl FnOnce() -> Result<()>) -> Result<Taken> {
    let (cpu, begun) = (sys::thread_time(), Instant::now());
    job()?;
    let wall = begun.elapsed();
    Ok(Taken { wall, cpu: Some(sys::thread_time().saturating_sub(cpu)) })
}

/// One thread's part of a pass.
pub struct Share<'a> {
    /// The number of the thread, from 0.
    pub thread: usize,
    /// The index of its first page in the order.
    pub first: usize,
    /// Its pages, in order.
    pub indexes: &'a [u32],
}

impl<'a> Work<'a> {
    /// The pages of `corpus` for `threads` threads. The threads take the CPUs of this process in
    /// turn.
    pub fn new(corpus: &'a [u8], threads: usize) -> Result<Work<'a>> {
        let pages = corpus.len() / PAGE_SIZE;
        if threads == 0 || pages < threads {
            bail!("{threads} threads for {pages} pages: each needs one at least");
        }
        let mut order: Vec<u32> = (0..u32::try_from(pages)?).collect();
        fastrand::Rng::with_seed(SEED).shuffle(&mut order);
        let cpus = threads::cpus(threads)?;
        let (front, back) = order.split_at(pages / 2);
        let others = [back, front].concat();
        let work = Work { corpus, order, others, run: 1, churn: false, cpus };
        // This allocates threads' stacks and the like, so that no target is charged for them.
        work.on_each_thread(|share| Ok(share.indexes.len()))?;
        Ok(work)
    }

    /// The work with or without churn.
    pub fn churning(self, churn: bool) -> Work<'a> {
        Work { churn, ..self }
    }

    /// The work in requests of `run` pages, of which [`CHUNK`] is a multiple. Pages that fill no
    /// request are left out.
    pub fn in_requests(self, run: usize) -> Result<Work<'a>> {
        let runs = self.order.len() / run;
        if runs < self.threads() {
            bail!("{} threads for {runs} requests: each needs one at least", self.threads());
        }
        let mut first: Vec<u32> = (0..runs as u32).collect();
        fastrand::Rng::with_seed(SEED).shuffle(&mut first);
        let pages = |runs: &[u32]| -> Vec<u32> {
            let run = run as u32;
            runs.iter().flat_map(|first| first * run..(first + 1) * run).collect()
        };
        let (front, back) = first.split_at(runs / 2);
        Ok(Work { others: pages(&[back, front].concat()), order: pages(&first), run, ..self })
    }

    pub fn pages(&self) -> usize {
        self.order.len()
    }

    /// The bytes of the pages.
    pub fn corpus(&self) -> &'a [u8] {
        self.corpus
    }

    /// The most pages of any thread.
    pub fn largest_share(&self) -> usize {
        (self.order.len() / self.run).div_ceil(self.cpus.len()) * self.run
    }

    pub fn threads(&self) -> usize {
        self.cpus.len()
    }

    /// Runs `job` on all threads at once. Each thread is pinned and has its share.
    pub fn on_each_thread<T: Send>(
        &self,
        job: impl Fn(Share<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let runs = self.order.len() / self.run;
        let share = |thread: usize| runs * thread / self.threads() * self.run;
        threads::on_each(&self.cpus, Ok, |thread| {
            let first = share(thread);
            job(Share { thread, first, indexes: &self.order[first..share(thread + 1)] })
        })
    }

    /// Runs `job` on all threads. `job` returns the time of its share.
    pub fn timed(&self, job: impl Fn(Share<'_>) -> Result<Taken> + Sync) -> Result<Speed> {
        interrupt::check()?;
        let times = self.on_each_thread(|share| {
            let pages = share.indexes.len();
            Ok((job(share)?, pages))
        })?;
        let threads = times.len() as f64;
        let slowest = times.iter().map(|(taken, _)| taken.wall.as_secs_f64()).fold(1e-9, f64::max);
        let wall = times.iter().map(|(taken, pages)| per_page(taken.wall, *pages));
        let cpu = times.iter().map(|(taken, pages)| Some(per_page(taken.cpu?, *pages)));
        Ok(Speed {
            ns_per_page: wall.sum::<f64>() / threads,
            mb_per_s: (self.order.len() * PAGE_SIZE) as f64 / 1e6 / slowest,
            cpu_ns_per_page: cpu.sum::<Option<f64>>().map(|sum| sum / threads),
        })
    }

    /// The first store: every page goes to its own place or, with churn, to another page's.
    pub fn store_first(&self, target: &dyn Target) -> Result<Speed> {
        let sources = if self.churn { &self.others } else { &self.order };
        self.timed(|share| self.store_from(target, &share, &sources[share.first..]))
    }

    /// Stores every page in its own place.
    pub fn store(&self, target: &dyn Target) -> Result<Speed> {
        self.timed(|share| self.store_from(target, &share, share.indexes))
    }

    /// Stores the pages `sources` to the places of `share`.
    fn store_from(&self, target: &dyn Target, share: &Share<'_>, sources: &[u32]) -> Result<Taken> {
        clock(|| {
            let pages = share.indexes.iter().zip(sources).step_by(self.run);
            for (&index, &source) in pages {
                let from = &self.corpus[source as usize * PAGE_SIZE..][..self.run * PAGE_SIZE];
                target.write(u64::from(index) * PAGE_SIZE as u64, from)?;
            }
            Ok(())
        })
    }

    /// Loads every page. Stops the clock to compare it with the stored page.
    pub fn load_verified(&self, target: &dyn Target) -> Result<(Speed, u64)> {
        // Relaxed throughout: a count that is read after all threads have been joined.
        let verified = AtomicU64::new(0);
        let speed = self.timed(|share| {
            let mut buffer = memory(CHUNK * PAGE_SIZE)?;
            let mut wall = Duration::ZERO;
            for chunk in share.indexes.chunks(CHUNK) {
                let begun = Instant::now();
                self.load_chunk(target, chunk, &mut buffer)?;
                wall += begun.elapsed();
                for (place, &index) in chunk.iter().enumerate() {
                    if page(&buffer, place) != page(self.corpus, index as usize) {
                        bail!("page {index} is not what was stored");
                    }
                }
                verified.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
            // Reading the CPU time this often would distort the result.
            Ok(Taken { wall, cpu: None })
        })?;
        Ok((speed, verified.load(Ordering::Relaxed)))
    }

    /// Loads every page without comparing it.
    pub fn load(&self, target: &dyn Target) -> Result<Speed> {
        self.timed(|share| {
            let mut buffer = memory(CHUNK * PAGE_SIZE)?;
            clock(|| {
                let mut chunks = share.indexes.chunks(CHUNK);
                chunks.try_for_each(|chunk| self.load_chunk(target, chunk, &mut buffer))
            })
        })
    }

    /// Loads pages into a buffer, one request after the other.
    fn load_chunk(&self, target: &dyn Target, indexes: &[u32], buffer: &mut [u8]) -> Result<()> {
        let requests = buffer.chunks_exact_mut(self.run * PAGE_SIZE);
        for (&index, into) in indexes.iter().step_by(self.run).zip(requests) {
            target.read(u64::from(index) * PAGE_SIZE as u64, into)?;
        }
        Ok(())
    }
}

fn per_page(time: Duration, pages: usize) -> f64 {
    time.as_nanos() as f64 / pages as f64
}

#[cfg(test)]
mod tests;
