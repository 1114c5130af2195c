//! `density --swap`: what recompression gains in the cache of swap areas, and what it costs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use rampack::Machine;
use serde::Serialize;
use serde_json::json;
use units::{Cpu, PAGE_SIZE};
use zswap::{AreaOptions, Key, Memcg, SwapType, Zswap};

use super::report::Cold;
use crate::args::DensityArgs;
use crate::sys::Memory;
use crate::{interrupt, page};

const CPU: Cpu = Cpu(0);
/// The codecs that pages are stored with.
const CODECS: [&str; 3] = [zcomp::LZO_RLE, zcomp::LZ4, zcomp::ZSTD];
/// The most seconds until all pages were looked at.
const PATIENCE: u32 = 4000;
/// Loads that are timed.
const READS: usize = 4096;

/// A dump in the cache.
#[derive(Serialize)]
struct Run {
    corpus: String,
    /// The codec of stores.
    codec: &'static str,
    pages: usize,
    /// Bytes of pages in a byte of the pool, as stored and after recompression.
    data_per_byte: [f64; 2],
    /// Bytes of the pool for a page, likewise.
    pool_per_page: [f64; 2],
    /// The times of single loads, likewise.
    load_us: [Cold; 2],
    /// Pages that were recompressed, and those that would not have become smaller.
    recompressed: u64,
    vain: u64,
    /// CPU time of all this for each of them, the looks at all entries included.
    us_per_page: f64,
    /// Seconds of the lab's clock until the last page was recompressed.
    seconds: u32,
}

/// Runs `density --swap`. Each run has a machine of its own.
///
/// # Errors
/// A dump cannot be read, memory is out, or a page does not come back as it was stored.
pub fn run(args: &DensityArgs, machine: &dyn Fn() -> Result<Machine>) -> Result<()> {
    let mut runs = Vec::new();
    for path in &args.corpus {
        let all = page::read(path)?;
        let pages = (all.len() / PAGE_SIZE).min(args.pages.map_or(usize::MAX, |it| it as usize));
        for codec in CODECS {
            runs.push(measure(&machine()?, (path, &all[..pages * PAGE_SIZE]), codec, args)?);
        }
    }
    let report = json!({ "command": "density", "cpu_percent": args.cpu, "runs": runs });
    crate::report::show(&report, args.json)
}

fn cache(
    machine: &Machine,
    pages: usize,
    codec: &str,
    percent: u32,
) -> Result<(Arc<Zswap>, Memcg)> {
    let make = || {
        let zswap = machine.swap()?;
        zswap.set_compressor(codec)?;
        zswap.set_max_pool_percent(100)?;
        zswap.policy().set_auto_cpu_percent(percent)?;
        zswap.set_auto(true)?;
        let memcg = zswap.memcg("default")?;
        let options = AreaOptions { device: None, memcg: memcg.clone() };
        zswap.swapon(SwapType::new(0)?, pages as u64, options)?;
        Ok((zswap, memcg))
    };
    make().map_err(|fault: control::ControlError| anyhow!("the cache: {fault}"))
}

fn measure(
    machine: &Machine,
    (path, bytes): (&Path, &[u8]),
    codec: &'static str,
    args: &DensityArgs,
) -> Result<Run> {
    let corpus = path.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into());
    let pages = bytes.len() / PAGE_SIZE;
    let (zswap, memcg) = cache(machine, pages, codec, args.cpu)?;
    let swap = SwapType::new(0).map_err(|fault| anyhow!("{fault}"))?;
    let key = |index: usize| Key { swap, offset: index as u64 };
    let mut kept = Vec::with_capacity(pages);
    for index in 0..pages {
        // A page that does not shrink stays with its owner: nothing is below the area.
        if zswap.store(CPU, key(index), &memcg, page::page(bytes, index)).is_ok() {
            kept.push(index);
        }
    }
    let mut random = fastrand::Rng::with_seed(args.seed);
    random.shuffle(&mut kept);
    let data = (kept.len() * PAGE_SIZE) as f64;
    let before = (zswap.stats(), loads(&zswap, (bytes, &kept), &key)?);
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
    let after = (zswap.stats(), loads(&zswap, (bytes, &kept), &key)?);
    let (was, is) = (before.0.pool_bytes as f64, after.0.pool_bytes as f64);
    let each = kept.len().max(1) as f64;
    let tried = after.0.recompressed + after.0.recompress_vain;
    Ok(Run {
        corpus,
        codec,
        pages: kept.len(),
        data_per_byte: [data / was.max(1.0), data / is.max(1.0)],
        pool_per_page: [was / each, is / each],
        load_us: [before.1, after.1],
        recompressed: after.0.recompressed,
        vain: after.0.recompress_vain,
        us_per_page: after.0.recompress_ns as f64 / 1000.0 / tried.max(1) as f64,
        seconds: seconds - still,
    })
}

/// Times loads of some pages, and checks all.
fn loads(
    zswap: &Zswap,
    (bytes, kept): (&[u8], &[usize]),
    key: &dyn Fn(usize) -> Key,
) -> Result<Cold> {
    let mut buffer = Memory::new(PAGE_SIZE).context("no memory for a page")?;
    let mut times = Vec::with_capacity(READS);
    for (n, index) in kept.iter().enumerate() {
        let begun = Instant::now();
        let loaded = zswap.load_and_keep(CPU, key(*index), page::page_mut(&mut buffer, 0));
        if n < READS {
            times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        if loaded.is_err() || buffer[..PAGE_SIZE] != page::page(bytes, *index)[..] {
            bail!("page {index} is not what was stored");
        }
    }
    Ok(Cold::of(times))
}
