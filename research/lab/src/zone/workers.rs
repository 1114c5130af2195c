//! A turn: threads, each on a CPU of its own, run a workload on a fresh zone. The clock measures
//! whole phases, not single calls.

use std::time::Instant;

use anyhow::{Result, anyhow};
use pagealloc::Frames;
use sync::Mutex;
use units::{Cpu, Frame};

use super::lock_stat::{LockStat, Phase};
use super::workload::Workload;
use crate::meeting::Meeting;
use crate::threads;

/// The job of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The calls of the threads.
    pub workload: Workload,
    pub threads: usize,
    /// Frames of each thread in a cycle.
    pub share: usize,
    /// Cycles that count.
    pub cycles: u32,
    /// The seed of all random orders.
    pub seed: u64,
    /// A CPU for each thread.
    pub cpus: &'a [usize],
}

/// The calls of a thread while they count, and their times.
#[derive(Clone, Default)]
pub struct Tally {
    /// Frames that were allocated, and freed.
    pub pages: u64,
    /// Nanoseconds of the allocations, and of the frees.
    pub alloc_ns: f64,
    pub free_ns: f64,
    /// Nanoseconds of frames that were freed at once.
    pub pair_ns: f64,
}

impl Tally {
    /// Nanoseconds of all these calls.
    pub fn busy_ns(&self) -> f64 {
        self.alloc_ns + self.free_ns + self.pair_ns
    }
}

/// Runs the job on its threads. If there is a probe, it hears the calls that count.
pub fn turn(job: &Job<'_>, zone: &dyn Frames, probe: Option<&LockStat>) -> Result<Vec<Tally>> {
    let meeting = &Meeting::new(job.threads);
    let holders: &Vec<Mutex<Vec<Frame>>> =
        &(0..job.threads).map(|_| Mutex::new(Vec::new())).collect();
    threads::on_each(&job.cpus[..job.threads], Ok, |me| {
        let _part = meeting.take_part();
        let hand = Hand {
            job,
            zone,
            probe,
            meeting,
            holders,
            me,
            cpu: Cpu(me as u32),
            random: fastrand::Rng::with_seed(job.seed.wrapping_mul(1000).wrapping_add(me as u64)),
            held: Vec::with_capacity(job.share),
            counts: false,
            tally: Tally::default(),
            trouble: None,
        };
        hand.work()
    })
}

/// A thread of the job.
struct Hand<'a> {
    job: &'a Job<'a>,
    zone: &'a dyn Frames,
    probe: Option<&'a LockStat>,
    meeting: &'a Meeting,
    /// The frames that each thread frees, where a thread frees another's frames.
    holders: &'a [Mutex<Vec<Frame>>],
    me: usize,
    cpu: Cpu,
    random: fastrand::Rng,
    held: Vec<Frame>,
    counts: bool,
    tally: Tally,
    trouble: Option<String>,
}

impl Hand<'_> {
    fn work(mut self) -> Result<Tally> {
        let (meets, share) = (self.job.workload.meets(), self.job.share);
        if self.job.workload == Workload::Repeat {
            self.fill(share);
        }
        self.meeting.wait();
        // Warm-up.
        self.cycle();
        if !meets && self.job.workload != Workload::Repeat {
            // A part of a cycle, so that each thread begins at a random point.
            let some = self.random.usize(..share) / 2;
            self.fill(some);
            self.empty(some);
        }
        self.counts = true;
        (0..self.job.cycles).for_each(|_| self.cycle());
        self.counts = false;
        self.listen(None);
        self.meeting.finish();
        while !meets && !self.meeting.all_done() {
            self.cycle();
        }
        self.empty(self.held.len());
        self.trouble.map_or(Ok(self.tally), |trouble| Err(anyhow!(trouble)))
    }

    /// Tells the probe which phase it is.
    fn listen(&self, phase: Option<Phase>) {
        if let Some(probe) = self.probe {
            probe.listen(self.cpu, phase.filter(|_| self.counts));
        }
    }

    fn cycle(&mut self) {
        let share = self.job.share;
        match self.job.workload {
            Workload::Repeat => self.again_and_again(share),
            Workload::PageFault1 => {
                self.fill(share);
                self.empty(share);
            }
            workload => {
                self.meeting.wait();
                self.fill(share);
                let crosses = workload == Workload::CrossFree;
                if crosses {
                    self.random.shuffle(&mut self.held);
                    let next = (self.me + 1) % self.holders.len();
                    std::mem::swap(&mut *self.holders[next].lock(), &mut self.held);
                }
                self.meeting.wait();
                if crosses {
                    std::mem::swap(&mut *self.holders[self.me].lock(), &mut self.held);
                }
                self.empty(share);
            }
        }
    }

    /// Allocates `want` single frames.
    fn fill(&mut self, want: usize) {
        let (zone, cpu, before) = (self.zone, self.cpu, self.held.len());
        self.listen(Some(Phase::Alloc));
        let begun = Instant::now();
        for _ in 0..want {
            let Some(frame) = zone.alloc(cpu) else { break };
            self.held.push(frame);
        }
        let ns = begun.elapsed().as_nanos() as f64;
        let got = self.held.len() - before;
        if got < want {
            self.refused();
        }
        if self.counts {
            self.tally.pages += got as u64;
            self.tally.alloc_ns += ns;
        }
    }

    /// Frees the first `count` frames of the thread.
    fn empty(&mut self, count: usize) {
        let (zone, cpu) = (self.zone, self.cpu);
        let count = count.min(self.held.len());
        self.listen(Some(Phase::Free));
        let begun = Instant::now();
        for frame in self.held.drain(..count) {
            zone.free(cpu, frame);
        }
        if self.counts {
            self.tally.free_ns += begun.elapsed().as_nanos() as f64;
        }
    }

    fn again_and_again(&mut self, times: usize) {
        let (zone, cpu) = (self.zone, self.cpu);
        self.listen(Some(Phase::Alloc));
        let (begun, mut done) = (Instant::now(), 0);
        while done < times {
            let Some(frame) = zone.alloc(cpu) else { break };
            zone.free(cpu, frame);
            done += 1;
        }
        let ns = begun.elapsed().as_nanos() as f64;
        if done < times {
            self.refused();
        }
        if self.counts {
            self.tally.pages += done as u64;
            self.tally.pair_ns += ns;
        }
    }

    fn refused(&mut self) {
        let (held, threads, capacity) = (self.held.len(), self.job.threads, self.zone.capacity());
        self.trouble.get_or_insert_with(|| {
            format!(
                "memory is said to be out, while a thread of {threads} holds {held} frames of \
                 {capacity}"
            )
        });
    }
}
