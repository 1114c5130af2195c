//! `rampack-lab writeback`: pages of a dump go to a file and come back, in each layout of a backing
//! device: a block for each page as it is, a block for each compressed page, and a log. So do pages
//! of a cache of swap areas, with a block for each page, and with a log below it.
//!
//! * **Out and back.** All pages are stored and written back, then each is read alone, then all by
//!   32 at a time. The layouts take turns. Each page is compared.
//! * **Replaced.** The log is so large that its pages fill the wanted share of it. Pages drawn at
//!   random are replaced and written back, until as much was written as fits several times. That is
//!   the worst for a log: no page lives longer than another. The second half counts.
//!
//! [`round`]: what the layouts share. [`swap`]: the cache of swap areas.

mod round;
mod swap;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use control::ControlError;
use machine::Machine;
use serde_json::{Value, json};
use units::PAGE_SIZE;
use zram::{Disk, LogStats, Select, Writeback};

use crate::args::WritebackArgs;
use crate::page::{Corpus, SEED};
use crate::statistics::{median, spread};
use crate::sys::Memory;
use crate::{interrupt, page, report};
use round::{CPU, SMALLEST, Sample, back, machine, new_file};
use swap::Below;

/// The part of the pages that is replaced before each writeback.
const PART: usize = 16;
/// How often as many pages as there are, are replaced.
const TIMES: usize = 6;

/// A layout of the backing device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Pages,
    Compressed,
    Log,
    /// A cache of swap areas.
    Swap(Below),
}

impl Layout {
    const ALL: [Layout; 5] = [
        Layout::Pages,
        Layout::Compressed,
        Layout::Log,
        Layout::Swap(Below::Pages),
        Layout::Swap(Below::Log),
    ];

    fn name(self) -> &'static str {
        match self {
            Layout::Pages => "a block a page",
            Layout::Compressed => "a block a compressed page",
            Layout::Log => "log",
            Layout::Swap(Below::Pages) => "swap cache, a block a page",
            Layout::Swap(Below::Log) => "swap cache, log",
        }
    }
}

/// Runs the command.
pub fn run(args: &WritebackArgs) -> Result<Value> {
    let rounds = args.repeat as usize * Layout::ALL.len() + args.full.len();
    report::begin((args.corpus.len() * rounds) as u64);
    let (mut out, mut replaced) = (Vec::new(), Vec::new());
    for path in &args.corpus {
        let mut corpus = Corpus::read(path)?;
        corpus.pages = args.pages as usize;
        let (corpus, name) = (&corpus, &corpus.name);
        let mut samples = Layout::ALL.map(|_| Vec::new());
        for _ in 0..args.repeat {
            for (layout, samples) in Layout::ALL.into_iter().zip(&mut samples) {
                report::step(format!("{name}: {}", layout.name()))?;
                samples.push(match layout {
                    Layout::Swap(below) => swap::out_and_back(corpus, below, args)?,
                    _ => out_and_back(corpus, layout, args)?,
                });
            }
        }
        out.extend(Layout::ALL.into_iter().zip(&samples).map(|(layout, s)| row(name, layout, s)));
        let log_bytes = samples[2].first().map_or(0, |sample| sample.live_bytes);
        for &full in &args.full {
            report::step(format!("{name}: {full}% full"))?;
            // A small log is less full: some of its segments hold no objects for long.
            let least = SMALLEST + log_bytes * 33 / 32;
            let bytes = (log_bytes * 100 / u64::from(full)).max(least);
            let [(objects_before, before), (objects, after)] = replace(corpus, bytes, args)?;
            let objects = objects - objects_before;
            let written = after.written_bytes - before.written_bytes;
            replaced.push(json!({
                "corpus": name,
                "full_percent": log_bytes as f64 * 100.0 / bytes as f64,
                "log_bytes": bytes,
                "object_bytes": objects,
                // With copies.
                "written_bytes": written,
                "copied_bytes": after.copied_bytes - before.copied_bytes,
                "cleaned_segments": after.cleaned_segments - before.cleaned_segments,
                "written_per_object_byte": written as f64 / objects.max(1) as f64,
            }));
        }
    }
    Ok(json!({
        "command": "writeback",
        "algorithm": args.algorithm,
        "repeat": args.repeat,
        "out": out,
        "replaced": replaced,
    }))
}

/// A dump in a layout. Times are medians of all rounds, with the least and the greatest.
fn row(corpus: &str, layout: Layout, samples: &[Sample]) -> Value {
    let all = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<f64>>();
    let out = all(&|s| s.pages as f64 * PAGE_SIZE as f64 / s.out_seconds / 1e6);
    let (alone, together) = (all(&|s| s.alone_us), all(&|s| s.together_us));
    let (pages, objects, written) =
        samples.first().map_or((0, 0, 0), |s| (s.pages, s.object_bytes, s.written_bytes));
    json!({
        "corpus": corpus,
        "layout": layout.name(),
        "pages": pages,
        "object_bytes": objects,
        "written_bytes": written,
        "written_per_object_byte": written as f64 / objects.max(1) as f64,
        "out_mb_per_second": median(out.iter().copied()),
        "out_spread": spread(&out),
        "alone_us": median(alone.iter().copied()),
        "alone_spread": spread(&alone),
        // A page of 32 that are read together.
        "together_us": median(together.iter().copied()),
        "together_spread": spread(&together),
        "verified_pages": samples.iter().map(|s| s.verified_pages).sum::<u64>(),
    })
}

/// A disk for the corpus over the first `bytes` bytes of a new file.
fn disk(
    machine: &Machine,
    file: &Path,
    corpus: &Corpus,
    layout: Layout,
    args: &WritebackArgs,
) -> Result<Arc<Disk>> {
    let make = || {
        let disk = machine.add()?;
        disk.set_algorithm(&args.algorithm)?;
        disk.set_backing_log(layout == Layout::Log)?;
        disk.set_backing(&file.display().to_string())?;
        disk.set_compressed_writeback(layout == Layout::Compressed)?;
        disk.set_disksize(corpus.pages as u64 * PAGE_SIZE as u64)?;
        Ok(disk)
    };
    make().map_err(|fault: ControlError| anyhow!("the disk: {fault}"))
}

fn store(disk: &Disk, corpus: &Corpus, index: usize, of: usize) -> Result<()> {
    let stored = disk.store_page(CPU, index as u64, corpus.page(of));
    stored.map_err(|error| anyhow!("page {index}: {error}"))
}

fn write_back(disk: &Disk) -> Result<()> {
    let all = Writeback { select: Some(Select::Any), pages: Vec::new() };
    disk.writeback(&all).map_err(|fault| anyhow!("{fault}"))
}

fn out_and_back(corpus: &Corpus, layout: Layout, args: &WritebackArgs) -> Result<Sample> {
    let pages = corpus.pages;
    // A page that does not shrink takes a block and a part of one in a log.
    let file = new_file(&args.dir, ((2 * pages * PAGE_SIZE) as u64).max(2 * SMALLEST))?;
    let machine = machine()?;
    let disk = disk(&machine, file.path(), corpus, layout, args)?;
    for index in 0..pages {
        store(&disk, corpus, index, index)?;
    }
    let before = disk.stats();
    let begun = Instant::now();
    write_back(&disk)?;
    let out_seconds = begun.elapsed().as_secs_f64();
    let (stats, log) = (disk.stats(), disk.log_stats());
    // Same-filled pages stay in memory.
    let written = stats.backed_writes;
    let [alone_us, together_us, verified] = back(corpus, &*disk)?;
    Ok(Sample {
        pages: written,
        object_bytes: before.compressed_bytes,
        written_bytes: log.map_or(written * PAGE_SIZE as u64, |log| log.written_bytes),
        live_bytes: log.map_or(0, |log| log.live_bytes),
        out_seconds,
        alone_us,
        together_us,
        verified_pages: verified as u64,
    })
}

/// Replaces pages of a log of `bytes` bytes. Returns the bytes of objects, and the log, before and
/// after what counts.
fn replace(corpus: &Corpus, bytes: u64, args: &WritebackArgs) -> Result<[(u64, LogStats); 2]> {
    let pages = corpus.pages;
    let file = new_file(&args.dir, bytes)?;
    let machine = machine()?;
    let disk = disk(&machine, file.path(), corpus, Layout::Log, args)?;
    let mut random = fastrand::Rng::with_seed(SEED);
    // The page of the dump that each page of the disk has. They are exchanged, so that all together
    // stay as large as they are.
    let mut of: Vec<usize> = (0..pages).collect();
    for index in 0..pages {
        store(&disk, corpus, index, index)?;
    }
    write_back(&disk)?;
    let (mut objects, rounds) = (0, TIMES * PART);
    let mut seen = [(0, LogStats::default()); 2];
    for round in 0..rounds {
        interrupt::check()?;
        if round == rounds / 2 {
            seen[0] = (objects, disk.log_stats().unwrap_or_default());
        }
        for _ in 0..pages.div_ceil(2 * PART) {
            let (one, other) = (random.usize(..pages), random.usize(..pages));
            of.swap(one, other);
            store(&disk, corpus, one, of[one])?;
            store(&disk, corpus, other, of[other])?;
        }
        objects += disk.stats().compressed_bytes;
        write_back(&disk)?;
    }
    seen[1] = (objects, disk.log_stats().unwrap_or_default());
    let mut buffer = Memory::new(PAGE_SIZE).context("no memory for a page")?;
    for (index, &of) in of.iter().enumerate() {
        let into = page::page_mut(&mut buffer, 0);
        disk.load_page(CPU, index as u64, into).map_err(|error| anyhow!("{index}: {error}"))?;
        corpus.check(of, into)?;
    }
    Ok(seen)
}
