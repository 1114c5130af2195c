//! `rampack-lab churn`: how much memory a pool keeps that is filled and freed many times.
//!
//! The command fills a disk with pages. In each round it discards a random half of them and stores
//! pages of other sizes. After each half of a round it compacts the disk, as an operator would.
//! Then it compares the pool with that of a fresh disk that got the same contents once, and the
//! memory of this process with the bytes that the pool reports.
//!
//! * [`content`]: the pages. [`report`]: the results.

mod content;
mod report;

use anyhow::{Context, Result, anyhow, bail};
use designs::{Disk, Machine, Variants};
use rampack::DiskOptions;
use units::PAGE_SIZE;

use crate::args::ChurnArgs;
use crate::interrupt;
use crate::page::{page, page_mut};
use crate::sys::Memory;
use content::Content;
use report::{Report, Round};

/// Runs the command.
///
/// # Errors
/// The zone is unknown, memory is out, the corpus cannot be read, or a page has changed.
pub fn run(args: &ChurnArgs) -> Result<()> {
    let mut variants = Variants::default();
    if let Some(zone) = &args.zone {
        variants.zone.clone_from(zone);
    }
    variants.check().map_err(|fault| anyhow!("--zone: {fault}"))?;
    let slots = usize::try_from(args.size / PAGE_SIZE as u64)?;
    let mut random = fastrand::Rng::with_seed(args.seed);
    let content = Content::new(args.corpus.as_deref(), &mut random)?;
    let bar = crate::report::bar(u64::from(args.rounds) + 1);
    let report = Churn { args, slots, content: &content, variants, random }.go(&bar);
    bar.finish_and_clear();
    crate::report::show(&report?, args.json)
}

struct Churn<'a> {
    args: &'a ChurnArgs,
    slots: usize,
    content: &'a Content,
    variants: Variants,
    random: fastrand::Rng,
}

/// Bytes of the pool, the engine and the process.
#[derive(Clone, Copy, Debug)]
struct Taken {
    pool: u64,
    /// The pool and the engine's tables.
    engine: u64,
    rss: u64,
}

impl Churn<'_> {
    fn disk(&self) -> Result<Disk> {
        let options = DiskOptions {
            size: (self.slots * PAGE_SIZE) as u64,
            algorithm: content::ALGORITHM.to_owned(),
            ..DiskOptions::default()
        };
        let make = || Machine::of(self.variants.clone())?.disk(&options);
        make().map_err(|fault| anyhow!("{fault}")).context("the engine")
    }

    fn store(&self, disk: &Disk, slot: usize, which: usize) -> Result<()> {
        let stored = disk.store(slot as u64, page(&self.content.bytes, which));
        stored.map_err(|error| anyhow!("storing page {slot}: {error}"))
    }

    /// Compacts the disk and takes its sizes.
    fn look(&self, disk: &Disk, base: u64) -> Result<Taken> {
        disk.compact().map_err(|fault| anyhow!("{fault}"))?;
        let stats = disk.stats();
        let engine = stats.pool_bytes + stats.overhead_bytes + stats.metadata_bytes;
        let rss = host::resident_bytes().saturating_sub(base);
        Ok(Taken { pool: stats.pool_bytes, engine, rss })
    }

    fn go(mut self, bar: &indicatif::ProgressBar) -> Result<Report> {
        // Everything that grows is allocated before the first measurement.
        let mut contents: Vec<usize> = vec![0; self.slots];
        let mut order: Vec<usize> = (0..self.slots).collect();
        let mut rounds = Vec::with_capacity(self.args.rounds as usize);
        let mut buffer = Memory::new(PAGE_SIZE).context("no memory for a page")?;
        let base = host::resident_bytes();
        let disk = self.disk()?;
        for (slot, which) in contents.iter_mut().enumerate() {
            *which = self.content.draw(0, &mut self.random);
            self.store(&disk, slot, *which)?;
        }
        let filled = self.look(&disk, base)?;
        bar.inc(1);
        for round in 1..=self.args.rounds {
            bar.set_message(format!("round {round}"));
            self.random.shuffle(&mut order);
            let half = &order[..self.slots / 2];
            for slots in half.chunks(1024) {
                interrupt::check()?;
                for &slot in slots {
                    let given_up = disk.discard(slot as u64, 1);
                    given_up.map_err(|error| anyhow!("discarding page {slot}: {error}"))?;
                }
            }
            let low = self.look(&disk, base)?;
            for slots in half.chunks(1024) {
                interrupt::check()?;
                for &slot in slots {
                    contents[slot] = self.content.draw(round, &mut self.random);
                    self.store(&disk, slot, contents[slot])?;
                }
            }
            let grown = disk.stats().pool_bytes;
            let high = self.look(&disk, base)?;
            let fresh = self.fresh(&contents)?;
            rounds.push(Round {
                round,
                replaced_pages: half.len(),
                pool_bytes_before_compaction: grown,
                pool_bytes: high.pool,
                fresh_pool_bytes: fresh.0,
                fresh_compacted_bytes: fresh.1,
                ratio: high.pool as f64 / fresh.0.max(1) as f64,
                engine_bytes: high.engine,
                rss_growth_bytes: high.rss,
                half_free_pool_bytes: low.pool,
                half_free_engine_bytes: low.engine,
                half_free_rss_growth_bytes: low.rss,
            });
            bar.inc(1);
        }
        for (slot, &which) in contents.iter().enumerate() {
            let loaded = disk.load(slot as u64, page_mut(&mut buffer, 0));
            loaded.map_err(|error| anyhow!("loading page {slot}: {error}"))?;
            if buffer[..] != page(&self.content.bytes, which)[..] {
                bail!("page {slot} is not what was stored");
            }
        }
        let given_up = disk.discard(0, self.slots as u64);
        given_up.map_err(|error| anyhow!("discarding all: {error}"))?;
        let empty = self.look(&disk, base)?;
        Ok(Report {
            command: "churn",
            zone: self.variants.zone.clone(),
            content: self.content.name.clone(),
            algorithm: content::ALGORITHM,
            size_bytes: (self.slots * PAGE_SIZE) as u64,
            seed: self.args.seed,
            filled_pool_bytes: filled.pool,
            filled_rss_growth_bytes: filled.rss,
            worst_ratio: rounds.iter().map(|round| round.ratio).fold(0.0, f64::max),
            worst_rss_over_engine: rounds.iter().map(Round::rss_over_engine).fold(0.0, f64::max),
            target_ratio: report::TARGET,
            within_target: rounds.iter().all(|round| round.ratio <= report::TARGET),
            rounds,
            emptied_pool_bytes: empty.pool,
            emptied_rss_growth_bytes: empty.rss,
            verified_pages: self.slots,
        })
    }

    /// Stores these contents once on a fresh disk. Returns the bytes of its pool before and after
    /// compaction.
    fn fresh(&self, contents: &[usize]) -> Result<(u64, u64)> {
        let disk = self.disk()?;
        for (slot, &which) in contents.iter().enumerate() {
            self.store(&disk, slot, which)?;
        }
        let before = disk.stats().pool_bytes;
        disk.compact().map_err(|fault| anyhow!("{fault}"))?;
        Ok((before, disk.stats().pool_bytes))
    }
}
