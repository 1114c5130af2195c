//! The turns of a measurement, in order.

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use pagealloc::{Frames, ZoneOptions};

use super::designs::Design;
use super::picture::Picture;
use super::run::{Gathered, Run};
use super::ticks::Clock;
use super::workers::{self, Job};
use super::workload::{Workload, usual_frames};
use crate::args::name_of;
use crate::interrupt;

/// Turns for locks happen once in this many rounds.
const SELDOM: usize = 3;
/// Zones of up to this many frames are checked frame by frame at the end of the last round.
const CHECKED: u32 = 1 << 20;
/// The least frames of a thread: more than pcp lists hold.
const LEAST: usize = 256;

/// The plan of a measurement.
pub struct Plan {
    /// The designs, which take turns.
    pub designs: Vec<&'static Design>,
    pub threads: Vec<usize>,
    pub workloads: Vec<Workload>,
    /// Frames of a zone; `None` for the usual number.
    pub frames: Option<u32>,
    pub repeat: usize,
    /// Cycles of a turn that count.
    pub cycles: u32,
    /// The CPUs, at least as many as threads.
    pub cpus: Vec<usize>,
}

impl Plan {
    /// Checks whether the plan is possible.
    pub fn check(&self) -> Result<()> {
        for (workload, threads) in self.cells() {
            let (frames, share) = self.sizes(workload, threads);
            if share < LEAST {
                bail!(
                    "{frames} frames are too few for {threads} threads of {}: each has {share}, \
                     and needs {LEAST}",
                    name_of(&workload)
                );
            }
        }
        Ok(())
    }

    pub fn turns(&self) -> u64 {
        let each = self.repeat + self.repeat.div_ceil(SELDOM);
        (self.cells().count() * self.designs.len() * each) as u64
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
    pub fn measure(&self, bar: &ProgressBar) -> Result<Vec<Run>> {
        let clock = Clock::calibrate();
        let mut runs = Vec::new();
        for (workload, threads) in self.cells() {
            let (frames, share) = self.sizes(workload, threads);
            let mut gathered: Vec<Gathered> =
                self.designs.iter().map(|_| Gathered::default()).collect();
            for round in 0..self.repeat {
                let (cycles, cpus, seed) = (self.cycles, &self.cpus[..], round as u64);
                let job = Job { workload, threads, share, cycles, seed, cpus };
                for turn in 0..self.designs.len() {
                    let which = (round + turn) % self.designs.len();
                    let design = self.designs[which];
                    let what = name_of(&workload);
                    bar.set_message(format!("{}, {what}, {threads}", design.name));
                    let made = self.turns_of(design, &job, round, frames, &mut gathered[which]);
                    made.with_context(|| format!("{} under {what}", design.name))?;
                    bar.inc(1 + u64::from(round.is_multiple_of(SELDOM)));
                }
            }
            runs.extend(self.designs.iter().zip(gathered).map(|(design, gathered)| {
                Run::new(design, workload, (threads, frames, share), &clock, gathered)
            }));
        }
        Ok(runs)
    }

    /// Makes the turns of a round.
    fn turns_of(
        &self,
        design: &Design,
        job: &Job<'_>,
        round: usize,
        frames: u32,
        gathered: &mut Gathered,
    ) -> Result<()> {
        interrupt::check()?;
        // Nothing goes back to the system: no system calls are measured.
        let options =
            ZoneOptions { keep_free_blocks: u32::MAX, ..ZoneOptions::new(job.threads, frames) };
        let zone = (design.plain)(&host::Mmap, options)?;
        let tallies = workers::turn(job, &*zone, None)?;
        gathered.timed(&tallies, Picture::of(&*zone));
        zone.drain();
        come_to_rest(&*zone, round + 1 == self.repeat && frames <= CHECKED)?;
        if round.is_multiple_of(SELDOM) {
            interrupt::check()?;
            let lock_stat = gathered.probe(job.threads);
            let zone = (design.probed)(&host::Mmap, options, lock_stat.clone())?;
            let tallies = workers::turn(job, &*zone, Some(&lock_stat))?;
            come_to_rest(&*zone, false)?;
            gathered.listened(&tallies);
        }
        Ok(())
    }
}

/// Checks that a zone reports all frames free after all were returned.
fn come_to_rest(zone: &dyn Frames, look: bool) -> Result<()> {
    let stats = zone.stats();
    if stats.allocated != 0 || stats.bad_frees != 0 {
        bail!(
            "everything was given back, but {} frames are said to be allocated, and {} frees to \
             have been wrong",
            stats.allocated,
            stats.bad_frees
        );
    }
    if look {
        zone.validate();
    }
    Ok(())
}
