//! `rampack-lab churn`: how much memory a pool keeps that is filled and freed many times.
//!
//! The command fills a disk with pages. In each round it discards a random half of them and stores
//! pages of other sizes. After each half of a round it compacts the disk, as an operator would.
//! Then it compares the pool with that of a fresh disk that got the same contents once, and the
//! memory of this process with the bytes that the pool reports.

mod content;

use anyhow::{Context, Result, anyhow, bail};
use designs::Variants;
use serde_json::{Value, json};
use units::PAGE_SIZE;

use crate::args::ChurnArgs;
use crate::interrupt;
use crate::page::{page, page_mut};
use crate::pages::{Engine, Target};
use crate::report::{begin, step};
use crate::sys::Memory;
use content::Content;

/// The ratio that a churned pool may have to a fresh one.
const TARGET: f64 = 1.03;

/// Runs the command.
pub fn run(args: &ChurnArgs) -> Result<Value> {
    let mut variants = Variants::default();
    if let Some(zone) = &args.zone {
        variants.zone.clone_from(zone);
    }
    variants.check().map_err(|fault| anyhow!("--zone: {fault}"))?;
    let slots = usize::try_from(args.size / PAGE_SIZE as u64)?;
    let mut random = fastrand::Rng::with_seed(1);
    let content = Content::new(args.corpus.as_deref(), &mut random)?;
    Churn { args, slots, content: &content, variants, random }.go()
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

impl Taken {
    /// Compacts the disk and takes its sizes.
    fn after_compaction(engine: &Engine, base: u64) -> Result<Taken> {
        engine.0.compact().map_err(|fault| anyhow!("{fault}"))?;
        let stats = engine.0.stats();
        let engine = stats.pool_bytes + stats.overhead_bytes + stats.metadata_bytes;
        let rss = host::resident_bytes().saturating_sub(base);
        Ok(Taken { pool: stats.pool_bytes, engine, rss })
    }

    /// The excess of the process's growth over the engine's bytes.
    fn rss_over_engine(&self) -> f64 {
        self.rss as f64 / self.engine.max(1) as f64
    }
}

impl Churn<'_> {
    fn disk(&self) -> Result<Engine> {
        Engine::new(self.slots, content::ALGORITHM, None, &self.variants)
    }

    fn page(&self, which: usize) -> &units::Page {
        page(&self.content.bytes, which)
    }

    fn go(mut self) -> Result<Value> {
        begin(u64::from(self.args.rounds) + 1);
        // Everything that grows is allocated before the first measurement.
        let mut contents: Vec<usize> = vec![0; self.slots];
        let mut order: Vec<usize> = (0..self.slots).collect();
        let mut rounds = Vec::with_capacity(self.args.rounds as usize);
        let mut buffer = Memory::new(PAGE_SIZE).context("no memory for a page")?;
        let base = host::resident_bytes();
        let disk = self.disk()?;
        let discard = |first: usize, count: usize| {
            let discarded = disk.0.discard(first as u64, count as u64);
            discarded.map_err(|error| anyhow!("discarding page {first}: {error}"))
        };
        step("filling")?;
        for (slot, which) in contents.iter_mut().enumerate() {
            *which = self.content.draw(0, &mut self.random);
            disk.store(slot as u64, self.page(*which))?;
        }
        let filled = Taken::after_compaction(&disk, base)?;
        let (mut worst, mut worst_rss) = (0.0_f64, 0.0_f64);
        for round in 1..=self.args.rounds {
            step(format!("round {round}"))?;
            self.random.shuffle(&mut order);
            let half = &order[..self.slots / 2];
            half.iter().try_for_each(|&slot| discard(slot, 1))?;
            interrupt::check()?;
            let low = Taken::after_compaction(&disk, base)?;
            for &slot in half {
                contents[slot] = self.content.draw(round, &mut self.random);
                disk.store(slot as u64, self.page(contents[slot]))?;
            }
            interrupt::check()?;
            let grown = disk.0.stats().pool_bytes;
            let high = Taken::after_compaction(&disk, base)?;
            let [fresh, compacted] = self.fresh(&contents)?;
            let ratio = high.pool as f64 / fresh.max(1) as f64;
            worst = worst.max(ratio);
            worst_rss = worst_rss.max(high.rss_over_engine()).max(low.rss_over_engine());
            rounds.push(json!({
                "round": round,
                "replaced_pages": half.len(),
                "pool_bytes_before_compaction": grown,
                "pool_bytes": high.pool,
                "fresh_pool_bytes": fresh,
                "fresh_compacted_bytes": compacted,
                "ratio": ratio,
                "engine_bytes": high.engine,
                "rss_growth_bytes": high.rss,
                "half_free_pool_bytes": low.pool,
                "half_free_engine_bytes": low.engine,
                "half_free_rss_growth_bytes": low.rss,
            }));
        }
        for (slot, &which) in contents.iter().enumerate() {
            disk.load(slot as u64, page_mut(&mut buffer, 0))?;
            if buffer[..] != self.page(which)[..] {
                bail!("page {slot} is not what was stored");
            }
        }
        discard(0, self.slots)?;
        let empty = Taken::after_compaction(&disk, base)?;
        Ok(json!({
            "command": "churn",
            "zone": self.variants.zone,
            "content": self.content.name,
            "algorithm": content::ALGORITHM,
            "size_bytes": self.slots * PAGE_SIZE,
            "filled_pool_bytes": filled.pool,
            "filled_rss_growth_bytes": filled.rss,
            "rounds": rounds,
            "worst_ratio": worst,
            "worst_rss_over_engine": worst_rss,
            "target_ratio": TARGET,
            "within_target": worst <= TARGET,
            "emptied_pool_bytes": empty.pool,
            "emptied_rss_growth_bytes": empty.rss,
            "verified_pages": self.slots,
        }))
    }

    /// Stores these contents once on a fresh disk. Returns the bytes of its pool before and after
    /// compaction.
    fn fresh(&self, contents: &[usize]) -> Result<[u64; 2]> {
        let disk = self.disk()?;
        for (slot, &which) in contents.iter().enumerate() {
            disk.store(slot as u64, self.page(which))?;
        }
        let before = disk.0.stats().pool_bytes;
        Ok([before, Taken::after_compaction(&disk, 0)?.pool])
    }
}
