//! The turns of a measurement, in order.

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use pagealloc::{Frames, ZoneOptions};

use super::designs::{Design, Subject};
use super::lock_stat::LockStat;
use super::meter::{Listener, Sampler};
use super::mode::Mode;
use super::picture::Picture;
use super::run::{Gathered, Run};
use super::ticks::Clock;
use super::workers::{self, Job};
use super::workload::{Start, Workload, usual_frames};
use crate::interrupt;

/// Turns for percentiles and for locks happen once in this many rounds.
const SELDOM: usize = 3;
/// Zones of up to this many frames are checked frame by frame at the end of the last round.
const CHECKED: u32 = 1 << 20;

/// The plan of a measurement.
pub struct Plan {
    /// The designs, which take turns.
    pub designs: Vec<&'static Design>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// The use of each frame.
    pub mode: Mode,
    /// The start of threads that do not meet.
    pub start: Start,
    /// Frames of a zone; `None` for the usual number.
    pub frames: Option<u32>,
    /// Rounds.
    pub repeat: usize,
    /// Cycles of a turn that count.
    pub cycles: u32,
    /// Frames that move between a pcp list and the zone at a time; `None` for the design's own
    /// number.
    pub batch: Option<usize>,
    /// The most frames in a pcp list; `None` for the design's own number.
    pub pcp: Option<usize>,
    /// Whether the zone returns free blocks to the system.
    pub give_back: bool,
    /// The seed of all random orders.
    pub seed: u64,
    /// The CPUs, at least as many as threads.
    pub cpus: Vec<usize>,
}

impl Plan {
    /// Checks whether the plan is possible.
    ///
    /// # Errors
    /// The plan is not possible; the message says why.
    pub fn check(&self) -> Result<()> {
        for (workload, threads) in self.cells() {
            let (frames, share) = self.sizes(workload, threads);
            // Enough for one step of the workload, and for more than pcp lists hold.
            let least = if workload.wants_blocks() { 2048 } else { 256 };
            if share < least {
                bail!(
                    "{frames} frames are too few for {threads} threads of {}: each has {share}, \
                     and needs {least}",
                    workload.name()
                );
            }
            if workload.wants_blocks() && self.designs.iter().all(|design| !design.blocks) {
                bail!("--workload {}: no design here has blocks", workload.name());
            }
        }
        Ok(())
    }

    /// Number of all turns.
    #[must_use]
    pub fn turns(&self) -> u64 {
        let seldom = self.repeat.div_ceil(SELDOM);
        let of_design = |design: &&&Design| {
            self.repeat + seldom + if design.probed.is_some() { seldom } else { 0 }
        };
        let of_cell = |(workload, _): (Workload, usize)| {
            let takes_part = |design: &&&Design| design.blocks || !workload.wants_blocks();
            self.designs.iter().filter(takes_part).map(|design| of_design(&design)).sum::<usize>()
        };
        self.cells().map(of_cell).sum::<usize>() as u64
    }

    fn cells(&self) -> impl Iterator<Item = (Workload, usize)> {
        self.workloads.iter().flat_map(|workload| self.threads.iter().map(|n| (*workload, *n)))
    }

    /// Frames of the zone and of each thread.
    fn sizes(&self, workload: Workload, threads: usize) -> (u32, usize) {
        let frames = self.frames.unwrap_or_else(|| usual_frames(workload, threads));
        (frames, workload.share(frames, threads))
    }

    /// Makes all turns.
    ///
    /// # Errors
    /// Memory is out, a thread cannot run on its CPU, or a zone allocates wrong frames.
    pub fn measure(&self, bar: &ProgressBar) -> Result<Vec<Run>> {
        let clock = Clock::calibrate();
        let mut runs = Vec::new();
        for (workload, threads) in self.cells() {
            let (frames, share) = self.sizes(workload, threads);
            let takes_part = |design: &&&'static Design| design.blocks || !workload.wants_blocks();
            let designs: Vec<&'static Design> =
                self.designs.iter().filter(takes_part).copied().collect();
            let mut gathered: Vec<Gathered> = designs.iter().map(|_| Gathered::default()).collect();
            for round in 0..self.repeat {
                for turn in 0..designs.len() {
                    let which = (round + turn) % designs.len();
                    let design = designs[which];
                    bar.set_message(format!("{}, {}, {threads}", design.name, workload.name()));
                    let job = Job {
                        workload,
                        mode: self.mode,
                        start: self.start,
                        threads,
                        share,
                        cycles: self.cycles,
                        seed: self.seed.wrapping_add(round as u64),
                        cpus: &self.cpus,
                    };
                    let place = Place { plan: self, design, frames, job: &job };
                    let last = round + 1 == self.repeat;
                    place
                        .turns(round, last, &clock, bar, &mut gathered[which])
                        .with_context(|| format!("{} under {}", design.name, workload.name()))?;
                }
            }
            runs.extend(designs.iter().copied().zip(gathered).map(|(design, gathered)| {
                let start = if workload.meets() { Start::Lockstep } else { self.start };
                let sizes = (threads, frames, share);
                Run::new(design, workload, self.mode, start, sizes, &clock, gathered)
            }));
        }
        Ok(runs)
    }
}

/// A design in a situation.
struct Place<'a> {
    plan: &'a Plan,
    design: &'static Design,
    frames: u32,
    job: &'a Job<'a>,
}

impl Place<'_> {
    fn options(&self) -> ZoneOptions {
        let mut options = ZoneOptions::new(self.job.threads, self.frames);
        if !self.plan.give_back {
            options.keep_free_blocks = u32::MAX;
        }
        options.cache_high = self.plan.pcp.unwrap_or(options.cache_high);
        options.batch = self.plan.batch.unwrap_or(options.batch);
        options
    }

    /// Makes the turns of a round.
    fn turns(
        &self,
        round: usize,
        last: bool,
        clock: &Clock,
        bar: &ProgressBar,
        gathered: &mut Gathered,
    ) -> Result<()> {
        interrupt::check()?;
        let (plain, options) = (self.design.plain, self.options());
        let threads = self.job.threads;
        let no_memory = |error| anyhow!("{error}");
        let zone = plain(&host::Mmap, options).map_err(no_memory)?;
        let turn = workers::turn(self.job, &zone, vec![(); threads])?;
        let before = Picture::of(&*zone.frames);
        zone.frames.drain();
        let after = Picture::of(&*zone.frames);
        self.come_to_rest(&zone, last)?;
        gathered.timed(&turn.tallies, [turn.live, before, after]);
        bar.inc(1);
        if !round.is_multiple_of(SELDOM) {
            return Ok(());
        }
        interrupt::check()?;
        let zone = plain(&host::Mmap, options).map_err(no_memory)?;
        let samplers = (0..threads).map(|_| Sampler::default()).collect();
        let turn = workers::turn(self.job, &zone, samplers)?;
        let at_rest = zone.blocks.as_deref().map(workers::ask_for_all);
        self.come_to_rest(&zone, false)?;
        gathered.sampled(&turn.meters, at_rest);
        bar.inc(1);
        if let Some(probed) = self.design.probed {
            interrupt::check()?;
            let lock_stat = LockStat::new(threads);
            let zone = probed(&host::Mmap, options, lock_stat.clone()).map_err(no_memory)?;
            let listeners = (0..threads).map(|_| Listener::new(lock_stat.clone())).collect();
            let turn = workers::turn(self.job, &zone, listeners)?;
            self.come_to_rest(&zone, false)?;
            gathered.listened(&lock_stat.locks(clock), &turn.tallies);
            bar.inc(1);
        }
        Ok(())
    }

    /// Checks that a zone reports all frames free after all were returned.
    fn come_to_rest(&self, zone: &Subject, look: bool) -> Result<()> {
        let zone: &dyn Frames = &*zone.frames;
        let stats = zone.stats();
        if stats.allocated != 0 || stats.bad_frees != 0 {
            bail!(
                "everything was given back, but {} frames are said to be allocated, and {} frees \
                 to have been wrong",
                stats.allocated,
                stats.bad_frees
            );
        }
        if look && self.frames <= CHECKED {
            zone.validate();
        }
        Ok(())
    }
}
