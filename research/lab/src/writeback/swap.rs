//! Pages of a cache of swap areas that are written back.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use block::{BlockDevice, Operation};
use control::Bound;
use rampack::{AreaOptions, HostFiles, HostSystem, SwapDevice, SwapType};
use units::PAGE_SIZE;
use zswap::PARAMETERS;

use super::round::{CPU, Corpus, SMALLEST, Sample, back, file, machine};
use crate::args::WritebackArgs;

/// The path in messages.
const FILE: &str = "the file";

/// Stores all pages, writes them back, and reads them.
pub fn out_and_back(corpus: &Corpus<'_>, is_log: bool, args: &WritebackArgs) -> Result<Sample> {
    let pages = corpus.pages as u64;
    let bytes = 2 * pages * PAGE_SIZE as u64 + SMALLEST;
    let file = file(&args.dir, bytes)?;
    let fault = |error| anyhow!("{error}");
    let below = HostSystem.open_backing(&file.path().display().to_string(), None);
    let below = below.map_err(fault)?;
    let seal = |device: Arc<dyn BlockDevice>, bytes| match args.plain {
        true => Ok(device),
        false => rampack::sealed(device, &host::Mmap, bytes, FILE),
    };
    let log = match is_log {
        true => Some(rampack::logged(below.clone(), &host::Mmap, pages, FILE, seal)),
        false => None,
    };
    let log = log.transpose().map_err(fault)?;
    let device: Arc<dyn BlockDevice> = match &log {
        Some(log) => log.clone(),
        None => seal(below, bytes).map_err(fault)?,
    };
    let zswap = machine()?.swap().map_err(fault)?;
    let parameters = Bound::new(zswap.clone(), PARAMETERS);
    for (name, value) in [("compressor", &*args.algorithm), ("max_pool_percent", "100")] {
        control::Object::store(&parameters, name, value).map_err(fault)?;
    }
    let swap = SwapType::new(0).map_err(fault)?;
    let memcg = zswap.memcg("default").map_err(fault)?;
    let options = AreaOptions { device: Some(device), memcg };
    zswap.swapon(swap, pages, options).map_err(fault)?;
    let area = SwapDevice::new(zswap.clone(), swap);
    for index in 0..corpus.pages {
        let offset = (index * PAGE_SIZE) as u64;
        let write = Operation::Write { offset, from: corpus.page(index) };
        area.submit(CPU, write).map_err(|error| anyhow!("page {index}: {error}"))?;
    }
    let before = zswap.stats();
    let begun = Instant::now();
    let written = zswap.reclaim(CPU, pages).written;
    let out_seconds = begun.elapsed().as_secs_f64();
    if written != pages {
        bail!("{written} of {pages} pages were written back");
    }
    let stats = log.map(|log| log.stats());
    let [alone_us, together_us, verified] = back(corpus, args, &area)?;
    Ok(Sample {
        pages: written,
        object_bytes: before.compressed_bytes,
        written_bytes: stats.map_or(written * PAGE_SIZE as u64, |log| log.written_bytes),
        live_bytes: stats.map_or(0, |log| log.live_bytes),
        out_seconds,
        alone_us,
        together_us,
        verified_pages: verified as u64,
    })
}
