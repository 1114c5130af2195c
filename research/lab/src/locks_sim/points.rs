//! Measurements of the engine on one and two threads: the test of the simulation.
//!
//! Every situation has a turn of a few milliseconds in every round. Medians of the rounds leave out
//! turns in which another program had a thread's CPU.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use designs::Variants;
use units::{PAGE_SIZE, Page};

use super::schemes::{Content, Op, Workload};
use crate::page::{page, page_mut, read};
use crate::pages::{Engine, Target};
use crate::sys::{Memory, memory};
use crate::threads::on_each;

/// Same-filled pages of each thread.
const PATTERNS: usize = 8;
/// Operations between two clock readings.
const BATCH: usize = 8;
/// Operations timed one by one.
const SINGLE: usize = 3000;
/// The most pages taken from a corpus.
const MOST: usize = 4096;
const SEED: u64 = 0x6c6f_636b_7300;

/// The pages that the threads store.
pub struct Contents {
    /// The name of the contents.
    pub name: String,
    bytes: Memory,
    /// The pages that are not same-filled, in a random order.
    chosen: Vec<usize>,
}

impl Contents {
    /// Reads the pages of a corpus.
    pub fn new(corpus: &Path) -> Result<Contents> {
        let (name, bytes) = (corpus.display().to_string(), read(corpus)?);
        let mut chosen: Vec<usize> = (0..bytes.len() / PAGE_SIZE).collect();
        chosen.retain(|&at| zcomp::same_filled(page(&bytes, at)).is_none());
        if chosen.len() < Workload::Eight.slots() {
            bail!("{name}: fewer than 8 pages that are not one pattern over and over");
        }
        fastrand::Rng::with_seed(SEED).shuffle(&mut chosen);
        chosen.truncate(MOST);
        Ok(Contents { name, bytes, chosen })
    }
}

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
        let engine = Engine::new(workload.slots(), zcomp::DEFAULT_ALGORITHM, variants)?;
        let device = Device { engine, workload, content };
        let mut hand = Hand::new(&device, contents, 0)?;
        (0..workload.slots()).try_for_each(|slot| hand.store(slot))?;
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
        let mut patterns = memory(PATTERNS * PAGE_SIZE)?;
        for (at, page) in patterns.chunks_exact_mut(PAGE_SIZE).enumerate() {
            page.fill(at as u8 + 1);
        }
        let (random, buffer) = (fastrand::Rng::with_seed(seed), memory(PAGE_SIZE)?);
        Ok(Hand { device, contents, random, patterns, buffer })
    }

    fn source(&mut self, slot: usize) -> &Page {
        let Hand { device, contents, random, patterns, .. } = self;
        let chosen = &contents.chosen;
        match (device.content, device.workload) {
            (Content::SameFilled, _) => page(patterns, random.usize(..PATTERNS)),
            (_, Workload::Eight) => page(&contents.bytes, chosen[slot]),
            (_, Workload::Spread) => page(&contents.bytes, chosen[random.usize(..chosen.len())]),
        }
    }

    #[inline]
    fn store(&mut self, slot: usize) -> Result<()> {
        let engine = &self.device.engine;
        engine.store(slot as u64, self.source(slot))
    }

    #[inline]
    fn go(&mut self, op: Op) -> Result<()> {
        let slot = self.random.usize(..self.device.workload.slots());
        match op.stores(&mut self.random) {
            true => self.store(slot),
            false => self.device.engine.load(slot as u64, page_mut(&mut self.buffer, 0)),
        }
    }
}

/// Lets one thread for each of `devices` work for a time, each on a CPU of its own. Returns the
/// rate of all together, in pages a second. All may be the same device.
pub fn turn(
    devices: &[&Device],
    contents: &Contents,
    op: Op,
    cpus: [usize; 2],
    time: Duration,
) -> Result<f64> {
    let prepare = |number: usize| Hand::new(devices[number], contents, cpus[number] as u64 + 1);
    let rates = on_each(&cpus[..devices.len()], prepare, |mut hand: Hand<'_>| {
        // Warm-up. It also replaces the cache contents of the situation before.
        let begun = Instant::now();
        while begun.elapsed() < time / 2 {
            hand.go(op)?;
        }
        let (begun, mut done) = (Instant::now(), 0);
        // One batch at least, however short the time is.
        while done == 0 || begun.elapsed() < time {
            (0..BATCH).try_for_each(|_| hand.go(op))?;
            done += BATCH;
        }
        Ok(done as f64 / begun.elapsed().as_secs_f64())
    })?;
    Ok(rates.iter().sum())
}

/// Factors of single operations to their mean; the mean of the factors is 1. The slowest hundredth,
/// which the system causes, takes the value before it.
pub fn spread(device: &Device, contents: &Contents, op: Op) -> Result<Vec<f64>> {
    let mut hand = Hand::new(device, contents, 7)?;
    let mut times = Vec::with_capacity(SINGLE);
    for _ in 0..SINGLE {
        let begun = Instant::now();
        hand.go(op)?;
        times.push(begun.elapsed().as_nanos().max(1) as f64);
    }
    times.sort_by(f64::total_cmp);
    let most = times[SINGLE - SINGLE / 100];
    let mean = times.iter().map(|time| time.min(most)).sum::<f64>() / SINGLE as f64;
    Ok(times.iter().step_by(4).map(|time| time.min(most) / mean).collect())
}
