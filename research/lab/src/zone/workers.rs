//! A turn: threads, each on a CPU of its own, run a workload on a fresh zone.
//!
//! The clock measures whole phases, not single calls, unless a [`Meter`] does so.

use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use designs::zones::Blocks as BlockZone;
use pagealloc::Frames;
use sync::Mutex;
use units::{Cpu, FRAMES_PER_PAGEBLOCK, Frame};

use super::designs::Subject;
use super::histogram::Histogram;
use super::meeting::Meeting;
use super::meter::Meter;
use super::mode::{Handling, Mode};
use super::picture::Picture;
use super::ticks;
use super::workload::{Start, Workload};

/// The order of a block of 2 MiB.
const BLOCK: u8 = 9;
/// Single frames between two such blocks, in the workload that requests both.
const STEP: usize = FRAMES_PER_PAGEBLOCK as usize;
/// One of this many single frames stays until the next cycle.
const STAYS: usize = 16;

/// The job of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The calls of the threads.
    pub workload: Workload,
    /// The use of each frame.
    pub mode: Mode,
    /// The start of the threads.
    pub start: Start,
    /// Number of threads.
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
    /// Single frames allocated.
    pub allocs: u64,
    /// Nanoseconds of these allocations.
    pub alloc_ns: f64,
    /// Single frames freed.
    pub frees: u64,
    /// Nanoseconds of these frees.
    pub free_ns: f64,
    /// Single frames allocated and freed at once.
    pub pairs: u64,
    /// Nanoseconds of these pairs.
    pub pair_ns: f64,
    /// Blocks of 2 MiB.
    pub blocks: Blocks,
}

/// The results of requests for blocks.
#[derive(Clone, Default)]
pub struct Blocks {
    /// Number of requests. Each had enough free memory.
    pub asked: u64,
    /// Number of successful requests.
    pub obtained: u64,
    /// Nanoseconds of the requests, including the frees.
    pub ns: f64,
    /// The time of each request, successful or not.
    pub alloc: Histogram,
}

impl Blocks {
    /// Adds all of another.
    pub fn merge(&mut self, other: &Blocks) {
        self.asked += other.asked;
        self.obtained += other.obtained;
        self.ns += other.ns;
        self.alloc.merge(&other.alloc);
    }
}

impl Tally {
    /// Number of allocated frames.
    #[must_use]
    pub fn pages(&self) -> f64 {
        (self.allocs + self.pairs + self.blocks.obtained * u64::from(FRAMES_PER_PAGEBLOCK)) as f64
    }

    /// Nanoseconds of all these calls.
    #[must_use]
    pub fn busy_ns(&self) -> f64 {
        self.alloc_ns + self.free_ns + self.pair_ns + self.blocks.ns
    }
}

/// The results of a turn.
pub struct Turn<M> {
    /// The tally of each thread.
    pub tallies: Vec<Tally>,
    /// The meter of each thread.
    pub meters: Vec<M>,
    /// The picture after half of the allocated frames were freed.
    pub live: Picture,
}

/// A thread's part of the results.
struct Share<M> {
    tally: Tally,
    meter: M,
    live: Option<Picture>,
    trouble: Option<String>,
}

/// Runs the job on its threads, with a meter for each.
///
/// # Errors
/// A thread cannot run on its CPU, or the zone wrongly reports that memory is out.
pub fn turn<M: Meter>(job: &Job<'_>, zone: &Subject, meters: Vec<M>) -> Result<Turn<M>> {
    let (zone, block_zone) = (&*zone.frames, zone.blocks.as_deref());
    let handling = job.mode.ready(zone);
    let meeting = &Meeting::new(job.threads);
    let holders: &Vec<Mutex<Vec<Frame>>> =
        &(0..job.threads).map(|_| Mutex::new(Vec::new())).collect();
    let work = |me: usize, meter: M| {
        let part = meeting.take_part();
        let pinned = host::pin_to_cpu(job.cpus[me]);
        let trouble = pinned.err().map(|error| format!("CPU {}: {error}", job.cpus[me]));
        let random = fastrand::Rng::with_seed(job.seed.wrapping_mul(1000).wrapping_add(me as u64));
        let held = Vec::with_capacity(job.share);
        let hand = Hand {
            job,
            zone,
            block_zone,
            handling,
            meeting,
            holders,
            me,
            cpu: Cpu(me as u32),
            meter,
            random,
            held,
            blocks: Vec::new(),
            stays: Vec::new(),
            counts: false,
            tally: Tally::default(),
            trouble,
        };
        let share = hand.work();
        drop(part);
        share
    };
    let shares: Result<Vec<Share<M>>> = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = meters
            .into_iter()
            .enumerate()
            .map(|(me, meter)| scope.spawn(move || work(me, meter)))
            .collect();
        let joined = running.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|end| end.map_err(|_| anyhow!("a thread panicked"))).collect()
    });
    let mut turn = Turn { tallies: Vec::new(), meters: Vec::new(), live: Picture::of(zone) };
    for share in shares? {
        if let Some(trouble) = share.trouble {
            bail!("{trouble}");
        }
        turn.tallies.push(share.tally);
        turn.meters.push(share.meter);
        turn.live = share.live.unwrap_or(turn.live);
    }
    Ok(turn)
}

/// Requests blocks from a zone at rest, without allocated frames, until all of its memory should be
/// allocated. Then frees them.
pub fn ask_for_all(zone: &dyn BlockZone) -> Blocks {
    let mut blocks = Blocks::default();
    let mut held = Vec::new();
    for _ in 0..zone.capacity() / FRAMES_PER_PAGEBLOCK {
        held.extend(ask(zone, Cpu(0), &mut blocks));
    }
    for frame in held {
        zone.free_block(Cpu(0), frame, BLOCK);
    }
    blocks
}

fn ask(zone: &dyn BlockZone, cpu: Cpu, blocks: &mut Blocks) -> Option<Frame> {
    let begun = ticks::now();
    let frame = zone.alloc_block(cpu, BLOCK);
    blocks.alloc.add(ticks::now().saturating_sub(begun));
    blocks.asked += 1;
    blocks.obtained += u64::from(frame.is_some());
    frame
}

/// A thread of the job.
struct Hand<'a, M> {
    job: &'a Job<'a>,
    zone: &'a dyn Frames,
    /// The same zone, if it has blocks.
    block_zone: Option<&'a dyn BlockZone>,
    handling: Handling<'a>,
    meeting: &'a Meeting,
    /// The frames that each thread frees, where a thread frees another's frames.
    holders: &'a [Mutex<Vec<Frame>>],
    me: usize,
    cpu: Cpu,
    meter: M,
    random: fastrand::Rng,
    held: Vec<Frame>,
    blocks: Vec<Frame>,
    stays: Vec<Frame>,
    counts: bool,
    tally: Tally,
    trouble: Option<String>,
}

impl<M: Meter> Hand<'_, M> {
    fn work(mut self) -> Share<M> {
        let (meets, share) = (self.job.workload.meets(), self.job.share);
        if self.job.workload == Workload::Repeat {
            self.fill(share);
        }
        self.meeting.wait();
        // Warm-up.
        self.cycle();
        if !meets {
            match self.job.start {
                Start::Lockstep => self.meeting.wait(),
                Start::Stagger => self.part_of_a_cycle(),
            }
        }
        self.count(true);
        (0..self.job.cycles).for_each(|_| self.cycle());
        self.count(false);
        self.meeting.finish();
        while !meets && !self.meeting.all_done() {
            self.cycle();
        }
        let live = self.end();
        Share { tally: self.tally, meter: self.meter, live, trouble: self.trouble }
    }

    fn count(&mut self, counts: bool) {
        self.counts = counts;
        self.meter.count(counts);
    }

    /// Does a part of a cycle, so that the thread begins at a random point.
    fn part_of_a_cycle(&mut self) {
        if self.job.workload != Workload::Repeat {
            let some = self.random.usize(..self.job.share) / 2;
            self.fill(some);
            self.empty(some);
        }
    }

    fn cycle(&mut self) {
        let share = self.job.share;
        match self.job.workload {
            Workload::Repeat => self.again_and_again(share),
            Workload::MixedOrder9 => self.mix(share),
            Workload::PageFault1 => {
                self.fill(share);
                self.empty(share);
            }
            workload => {
                self.meeting.wait();
                self.fill(share);
                if workload.shuffles() {
                    self.random.shuffle(&mut self.held);
                }
                if workload == Workload::CrossFree {
                    let next = (self.me + 1) % self.holders.len();
                    std::mem::swap(&mut *self.holders[next].lock(), &mut self.held);
                }
                self.meeting.wait();
                if workload == Workload::CrossFree {
                    std::mem::swap(&mut *self.holders[self.me].lock(), &mut self.held);
                }
                self.empty(share);
            }
        }
    }

    /// Allocates `want` single frames.
    fn fill(&mut self, want: usize) {
        let (zone, cpu, before) = (self.zone, self.cpu, self.held.len());
        let begun = Instant::now();
        for _ in 0..want {
            let Some(frame) = self.meter.alloc(zone, cpu) else { break };
            self.handling.handle(frame);
            self.held.push(frame);
        }
        let ns = begun.elapsed().as_nanos() as f64;
        let got = self.held.len() - before;
        if got < want {
            self.refused();
        }
        if self.counts {
            self.tally.allocs += got as u64;
            self.tally.alloc_ns += ns;
        }
    }

    /// Frees the first `count` frames of the thread.
    fn empty(&mut self, count: usize) {
        let (zone, cpu) = (self.zone, self.cpu);
        let count = count.min(self.held.len());
        let begun = Instant::now();
        for frame in self.held.drain(..count) {
            self.meter.free(zone, cpu, frame);
        }
        let ns = begun.elapsed().as_nanos() as f64;
        if self.counts {
            self.tally.frees += count as u64;
            self.tally.free_ns += ns;
        }
    }

    fn again_and_again(&mut self, times: usize) {
        let (zone, cpu) = (self.zone, self.cpu);
        let (begun, mut done) = (Instant::now(), 0);
        while done < times {
            let Some(frame) = self.meter.alloc(zone, cpu) else { break };
            self.handling.handle(frame);
            self.meter.free(zone, cpu, frame);
            done += 1;
        }
        let ns = begun.elapsed().as_nanos() as f64;
        if done < times {
            self.refused();
        }
        if self.counts {
            self.tally.pairs += done as u64;
            self.tally.pair_ns += ns;
        }
    }

    /// Allocates blocks among single frames. The zone is never more than three quarters full, so
    /// memory for a block always exists, though perhaps not contiguous.
    fn mix(&mut self, share: usize) {
        let Some(zone) = self.block_zone else { return };
        let old = std::mem::take(&mut self.stays);
        let mut taken = old.len();
        let mut uncounted = Blocks::default();
        while taken + STEP + FRAMES_PER_PAGEBLOCK as usize <= share {
            self.fill(STEP);
            let blocks = if self.counts { &mut self.tally.blocks } else { &mut uncounted };
            let begun = Instant::now();
            let frame = ask(zone, self.cpu, blocks);
            blocks.ns += begun.elapsed().as_nanos() as f64;
            taken += STEP + frame.map_or(0, |_| FRAMES_PER_PAGEBLOCK as usize);
            self.blocks.extend(frame);
        }
        self.random.shuffle(&mut self.held);
        let left = self.held.len() - self.held.len() / STAYS;
        self.stays = self.held.split_off(left);
        self.held.extend(old);
        self.random.shuffle(&mut self.held);
        self.empty(self.held.len());
        let begun = Instant::now();
        for frame in self.blocks.drain(..) {
            zone.free_block(self.cpu, frame, BLOCK);
        }
        if self.counts {
            self.tally.blocks.ns += begun.elapsed().as_nanos() as f64;
        }
    }

    /// Allocates once more, frees half in the way of the workload, lets the first thread take the
    /// picture, and frees the rest.
    fn end(&mut self) -> Option<Picture> {
        let share = self.job.share;
        self.held.append(&mut self.stays);
        self.fill(share.saturating_sub(self.held.len()));
        if self.job.workload.shuffles() || self.job.workload.wants_blocks() {
            self.random.shuffle(&mut self.held);
        }
        self.meeting.wait();
        self.empty(self.held.len() / 2);
        self.meeting.wait();
        let picture = (self.me == 0).then(|| Picture::of(self.zone));
        self.meeting.wait();
        self.empty(self.held.len());
        picture
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
