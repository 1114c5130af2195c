//! Pages of a cache of swap areas that are written back.

use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use block::{BlockDevice, Operation};
use control::{Bound, ControlError};
use machine::HostSystem;
use store::{Layout, Spec, Store};
use units::PAGE_SIZE;
use zram::HostFiles;
use zswap::{AreaOptions, PARAMETERS, SwapDevice, SwapType};

use super::round::{CPU, SMALLEST, Sample, back, machine, new_file};
use crate::args::WritebackArgs;
use crate::page::Corpus;

/// The path in messages.
const FILE: &str = "the file";

/// What is below the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    Pages,
    Log,
}

/// Stores all pages, writes them back, and reads them.
pub fn out_and_back(corpus: &Corpus, kind: Below, args: &WritebackArgs) -> Result<Sample> {
    let pages = corpus.pages as u64;
    let bytes = 2 * pages * PAGE_SIZE as u64 + SMALLEST;
    let file = new_file(&args.dir, bytes)?;
    let fault = |error: ControlError| anyhow!("{error}");
    let below = HostSystem.open_backing(&file.path().display().to_string(), None);
    let below = below.map_err(fault)?;
    let layout = match kind {
        Below::Pages => Layout::Blocks(bytes),
        Below::Log => Layout::Log(pages),
    };
    let spec = Spec { is_sealed: true, ..Spec::new(below, FILE, layout) };
    let Store { device, log, .. } = Store::open(spec).map_err(|error| fault(error.into()))?;
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
    let [alone_us, together_us, verified] = back(corpus, &area)?;
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
