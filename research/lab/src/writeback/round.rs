//! What the rounds of `writeback` share: pages, a file, and how pages come back.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use block::{BlockDevice, Operation};
use machine::{HostSystem, Machine};
use tempfile::NamedTempFile;
use units::{Cpu, PAGE_SIZE};

use crate::page::{self, Corpus, SEED};
use crate::sys::Memory;

pub const CPU: Cpu = Cpu(0);
/// The bytes of the smallest log.
pub const SMALLEST: u64 = 3 << 20;
/// The most pages that are read alone.
const ALONE: usize = 8192;
/// Pages of a read of several.
const TOGETHER: usize = 32;

/// What a round found.
pub struct Sample {
    pub pages: u64,
    pub object_bytes: u64,
    pub written_bytes: u64,
    pub live_bytes: u64,
    pub out_seconds: f64,
    pub alone_us: f64,
    pub together_us: f64,
    pub verified_pages: u64,
}

/// Makes a file of this length, which is removed at the end.
pub fn new_file(dir: &Path, bytes: u64) -> Result<NamedTempFile> {
    let file = NamedTempFile::with_prefix_in("rampack-lab-", dir)
        .with_context(|| format!("cannot make a file in {}", dir.display()))?;
    file.as_file().set_len(bytes).context("cannot make the file as long as wanted")?;
    Ok(file)
}

pub fn machine() -> Result<Machine> {
    crate::pages::machine(Arc::new(HostSystem), false)
}

/// Reads pages that were written back, each alone, and then all, 32 at a time. Returns the
/// microseconds for a page of each, and the pages that were compared.
pub fn back(corpus: &Corpus, device: &dyn BlockDevice) -> Result<[f64; 3]> {
    let pages = corpus.pages;
    let is_written = |index: &usize| zcomp::same_filled(corpus.page(*index)).is_none();
    let mut order: Vec<usize> = (0..pages).filter(is_written).collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut order);
    order.truncate(ALONE);
    let mut buffer = Memory::new(TOGETHER * PAGE_SIZE).context("no memory for pages")?;
    let mut read = |pages: Range<usize>| -> Result<()> {
        let into = &mut buffer[..pages.len() * PAGE_SIZE];
        let offset = (pages.start * PAGE_SIZE) as u64;
        let read = Operation::Read { offset, into: &mut *into };
        device.submit(CPU, read).map_err(|error| anyhow!("{offset}: {error}"))?;
        let mut found = pages.zip(page::pages(into));
        found.try_for_each(|(index, found)| corpus.check(index, found))
    };
    let begun = Instant::now();
    order.iter().try_for_each(|&index| read(index..index + 1))?;
    let alone = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for first in (0..pages).step_by(TOGETHER) {
        read(first..(first + TOGETHER).min(pages))?;
    }
    let together = begun.elapsed().as_secs_f64();
    let us = |seconds: f64, pages: usize| seconds * 1e6 / pages.max(1) as f64;
    Ok([us(alone, order.len()), us(together, pages), (order.len() + pages) as f64])
}
