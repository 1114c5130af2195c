//! `density --swap`: what recompression gains in the cache of swap areas, and what it costs.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use units::{Cpu, PAGE_SIZE};
use zswap::{Key, Zswap};

use crate::args::DensityArgs;
use crate::page::{Corpus, SEED};
use crate::pages::Swap;
use crate::statistics::percentiles;
use crate::sys::memory;
use crate::{interrupt, page, report};

const CPU: Cpu = Cpu(0);
/// The codecs that pages are stored with.
pub const CODECS: [&str; 3] = [zcomp::LZO_RLE, zcomp::LZ4, zcomp::ZSTD];
/// The most seconds until all pages were looked at.
const PATIENCE: u32 = 4000;
/// Loads that are timed.
const READS: usize = 4096;

/// The dump with each codec, each in a machine of its own.
pub fn runs(corpus: &Corpus, args: &DensityArgs) -> Result<Vec<Value>> {
    let run = |codec| {
        report::step(format!("{}: {codec}", corpus.name))?;
        measure(corpus, codec, args)
    };
    CODECS.into_iter().map(run).collect()
}

fn measure(corpus: &Corpus, codec: &str, args: &DensityArgs) -> Result<Value> {
    let Swap { zswap, swap, memcg, .. } =
        &Swap::new(corpus.pages, codec, designs::Variants::default())?;
    zswap.policy().set_auto_cpu_percent(args.cpu)?;
    zswap.set_auto(true)?;
    let key = |index: usize| Key { swap: *swap, offset: index as u64 };
    // A page that does not shrink stays with its owner: nothing is below the area.
    let is_kept = |index: &usize| zswap.store(CPU, key(*index), memcg, corpus.page(*index)).is_ok();
    let mut kept: Vec<usize> = (0..corpus.pages).filter(is_kept).collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut kept);
    let data = (kept.len() * PAGE_SIZE) as f64;
    let before = (zswap.stats(), loads(zswap, corpus, &kept, &key)?);
    let (mut seconds, mut last, mut still) = (0, 0, 0);
    // Nothing moves for a while when all pages were looked at.
    while seconds < PATIENCE && still < 2 * zswap.policy().auto_age() {
        interrupt::check()?;
        seconds += 1;
        let waits = zswap.recompress_old(CPU, 1_000_000_000, &host::thread_cpu_time);
        let moved = zswap.stats().recompressed;
        still = if waits || moved != last { 0 } else { still + 1 };
        last = moved;
    }
    let after = (zswap.stats(), loads(zswap, corpus, &kept, &key)?);
    let (was, is) = (before.0.pool_bytes as f64, after.0.pool_bytes as f64);
    let pages = kept.len().max(1) as f64;
    let tried = after.0.recompressed + after.0.recompress_vain;
    // Pairs are as stored, and after recompression.
    Ok(json!({
        "corpus": corpus.name,
        "codec": codec,
        "pages": kept.len(),
        "data_per_byte": [data / was.max(1.0), data / is.max(1.0)],
        "pool_per_page": [was / pages, is / pages],
        "load_us": [before.1, after.1],
        // Pages that were recompressed, and those that would not have become smaller.
        "recompressed": after.0.recompressed,
        "vain": after.0.recompress_vain,
        // CPU time of all this for each of them, the looks at all entries included.
        "us_per_page": after.0.recompress_ns as f64 / 1000.0 / tried.max(1) as f64,
        // Seconds of the lab's clock until the last page was recompressed.
        "seconds": seconds - still,
    }))
}

/// Times loads of some pages, and checks all.
fn loads(
    zswap: &Zswap,
    corpus: &Corpus,
    kept: &[usize],
    key: &dyn Fn(usize) -> Key,
) -> Result<Value> {
    let mut buffer = memory(PAGE_SIZE).context("no memory for a page")?;
    let mut times = Vec::with_capacity(READS);
    for (n, &index) in kept.iter().enumerate() {
        let begun = Instant::now();
        let loaded = zswap.load_and_keep(CPU, key(index), page::page_mut(&mut buffer, 0));
        if n < READS {
            times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        if loaded.is_err() {
            bail!("page {index} of {} is not there", corpus.name);
        }
        corpus.check(index, &buffer)?;
    }
    Ok(percentiles(times))
}
