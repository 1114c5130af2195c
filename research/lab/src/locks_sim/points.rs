//! Measurements of the engine on one and two threads: the test of the simulation.
//!
//! Every situation has a turn of a few milliseconds in every round. The median of the rounds
//! counts. A turn in which another program took a thread's CPU is left out, as long as enough turns
//! remain.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use designs::Variants;
use units::{PAGE_SIZE, Page};

use super::content::Contents;
use super::schemes::{Content, Op, Workload};
use crate::page::{page, page_mut};
use crate::pages::{Engine, Target};
use crate::statistics::median;
use crate::sys::Memory;
use crate::threads::on_each;

/// Same-filled pages of each thread.
const PATTERNS: usize = 8;
/// Operations between two clock readings.
const BATCH: usize = 8;
/// The least number of turns that must remain.
const ENOUGH: usize = 3;

/// A device ready for measurement.
pub struct Device {
    engine: Engine,
    workload: Workload,
    content: Content,
}

impl Device {
    /// A device with every page stored.
    pub fn new(
        variants: &Variants,
        workload: Workload,
        content: Content,
        contents: &Contents,
    ) -> Result<Device> {
        let engine = Engine::new(workload.slots(), rampack::DEFAULT_ALGORITHM, None, variants)?;
        let device = Device { engine, workload, content };
        let mut hand = Hand::new(&device, contents, 0)?;
        for slot in 0..workload.slots() {
            hand.store(slot)?;
        }
        Ok(device)
    }
}

/// A thread at work on a device.
struct Hand<'a> {
    device: &'a Device,
    contents: &'a Contents,
    random: fastrand::Rng,
    patterns: Memory,
    buffer: Memory,
}

impl<'a> Hand<'a> {
    fn new(device: &'a Device, contents: &'a Contents, seed: u64) -> Result<Hand<'a>> {
        let mut patterns = Memory::new(PATTERNS * PAGE_SIZE)?;
        for (at, page) in patterns.chunks_exact_mut(PAGE_SIZE).enumerate() {
            page.fill(at as u8 + 1);
        }
        let (random, buffer) = (fastrand::Rng::with_seed(seed), Memory::new(PAGE_SIZE)?);
        Ok(Hand { device, contents, random, patterns, buffer })
    }

    fn source(&mut self, slot: usize) -> &Page {
        let Hand { device, contents, random, patterns, .. } = self;
        match (device.content, device.workload) {
            (Content::SameFilled, _) => page(patterns, random.usize(..PATTERNS)),
            (_, Workload::Eight) => page(&contents.bytes, contents.eight[slot].0),
            (_, Workload::Spread) => {
                page(&contents.bytes, contents.objects[random.usize(..contents.objects.len())].0)
            }
        }
    }

    #[inline]
    fn store(&mut self, slot: usize) -> Result<()> {
        let engine = &self.device.engine;
        engine.store(slot as u64, self.source(slot))
    }

    #[inline]
    fn load(&mut self, slot: usize) -> Result<()> {
        self.device.engine.load(slot as u64, page_mut(&mut self.buffer, 0))
    }

    #[inline]
    fn go(&mut self, op: Op) -> Result<()> {
        let slot = self.random.usize(..self.device.workload.slots());
        let stores = match op {
            Op::Store => true,
            Op::Load => false,
            Op::Mix => self.random.bool(),
        };
        if stores { self.store(slot) } else { self.load(slot) }
    }
}

/// The rates of a situation, in pages a second.
#[derive(Clone, Default, Debug)]
pub struct Rates {
    /// Rates of undisturbed turns.
    calm: Vec<f64>,
    all: Vec<f64>,
}

impl Rates {
    /// The median.
    pub fn median(&self) -> f64 {
        let rates = if self.calm.len() >= ENOUGH { &self.calm } else { &self.all };
        median(rates.iter().copied())
    }

    /// Number of turns that count.
    pub fn counted(&self) -> usize {
        if self.calm.len() >= ENOUGH { self.calm.len() } else { self.all.len() }
    }

    /// Number of all turns.
    pub fn turns(&self) -> usize {
        self.all.len()
    }
}

/// The work of a thread in its turn.
struct Share {
    rate: f64,
    calm: bool,
    begun: Duration,
}

/// How often this thread lost its CPU (proc(5), `status`), and the nanoseconds it has waited for
/// one (`schedstat`). 0 where the system does not tell.
fn disturbances() -> (u64, u64) {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let text = read("/proc/thread-self/status");
    let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    let taken_off = line.and_then(|number| number.trim().parse().ok()).unwrap_or(0);
    let text = read("/proc/thread-self/schedstat");
    let waited = text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0);
    (taken_off, waited)
}

/// Whether a thread was undisturbed between two readings that are `elapsed` apart. A thread that
/// sleeps always waits a little for its CPU.
fn is_calm(before: (u64, u64), after: (u64, u64), elapsed: Duration) -> bool {
    before.0 == after.0 && u128::from(after.1 - before.1) * 20 < elapsed.as_nanos()
}

/// Lets one thread for each of `devices` work for a time, each on a CPU of its own. Notes the rate
/// of all together. All may be the same device.
pub fn turn(
    devices: &[&Device],
    contents: &Contents,
    op: Op,
    cpus: [usize; 2],
    time: Duration,
    rates: &mut Rates,
) -> Result<()> {
    let start = Instant::now();
    let prepare = |number: usize| Hand::new(devices[number], contents, cpus[number] as u64 + 1);
    let results = on_each(&cpus[..devices.len()], prepare, |mut hand: Hand<'_>| {
        // Warm-up. It also replaces the cache contents of the situation before.
        let begun = Instant::now();
        while begun.elapsed() < time / 2 {
            hand.go(op)?;
        }
        let before = disturbances();
        let begun = Instant::now();
        let mut done = 0;
        loop {
            for _ in 0..BATCH {
                hand.go(op)?;
            }
            done += BATCH;
            let elapsed = begun.elapsed();
            if elapsed >= time {
                let rate = done as f64 / elapsed.as_secs_f64();
                let calm = is_calm(before, disturbances(), elapsed);
                return Ok(Share { rate, calm, begun: begun - start });
            }
        }
    })?;
    let rate = results.iter().map(|share| share.rate).sum();
    rates.all.push(rate);
    // A thread that works before the other begins or after it ends works alone.
    let begun = results.iter().map(|share| share.begun);
    let late = begun.clone().max().unwrap_or_default() - begun.min().unwrap_or_default();
    if results.iter().all(|share| share.calm) && late * 20 < time {
        rates.calm.push(rate);
    }
    Ok(())
}

/// Number of operations timed one by one.
const SINGLE: usize = 3000;

/// Factors of single operations to their mean; the mean of the factors is 1. The slowest hundredth,
/// which the system causes, takes the value before it.
pub fn spread(device: &Device, contents: &Contents, op: Op, clock: f64) -> Result<Vec<f64>> {
    let mut hand = Hand::new(device, contents, 7)?;
    let mut times = Vec::with_capacity(SINGLE);
    for _ in 0..SINGLE {
        let begun = Instant::now();
        hand.go(op)?;
        times.push((begun.elapsed().as_nanos() as f64 - clock).max(1.0));
    }
    times.sort_by(f64::total_cmp);
    let most = times[SINGLE - SINGLE / 100];
    let mean = times.iter().map(|time| time.min(most)).sum::<f64>() / SINGLE as f64;
    Ok(times.iter().step_by(4).map(|time| time.min(most) / mean).collect())
}
