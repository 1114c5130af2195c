//! `rampack-lab writeback`: pages of a dump go to a file and come back, in each layout of a backing
//! device: a block for each page as it is, a block for each compressed page, and a log.
//!
//! * **Out and back.** All pages are stored and written back, then each is read alone, then all by
//!   32 at a time. The layouts take turns. Each page is compared.
//! * **Replaced.** The log is so large that its pages fill the wanted share of it. Pages drawn at
//!   random are replaced and written back, until as much was written as fits several times. That is
//!   the worst for a log: no page lives longer than another. The second half counts.
//!
//! [`report`]: the results.

mod report;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use block::{BlockDevice, Operation};
use rampack::control::ControlError;
use rampack::{HostSystem, Machine, MachineOptions};
use tempfile::NamedTempFile;
use units::{Cpu, PAGE_SIZE, Page};
use zram::{Disk, LogStats, Select, Writeback};

use crate::args::WritebackArgs;
use crate::statistics::{median, spread};
use crate::sys::Memory;
use crate::{interrupt, page, zone};
use report::{Out, Replaced, Report};

const CPU: Cpu = Cpu(0);
/// The most pages that are read alone.
const ALONE: usize = 8192;
/// Pages of a read of several.
const TOGETHER: usize = 32;
/// The part of the pages that is replaced before each writeback.
const PART: usize = 16;
/// How often as many pages as there are, are replaced.
const TIMES: usize = 6;
/// The bytes of the smallest log.
const SMALLEST: u64 = 3 << 20;

/// A layout of the backing device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    Pages,
    Compressed,
    Log,
}

impl Layout {
    const ALL: [Layout; 3] = [Layout::Pages, Layout::Compressed, Layout::Log];

    fn name(self) -> &'static str {
        match self {
            Layout::Pages => "a block a page",
            Layout::Compressed => "a block a compressed page",
            Layout::Log => "log",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A dump cannot be read, the file cannot be made or written, memory is out, or a page does not
/// come back as it was stored.
pub fn run(args: &WritebackArgs) -> Result<()> {
    let rounds = args.repeat as usize * Layout::ALL.len() + args.full.len();
    let bar = zone::bar((args.corpus.len() * rounds) as u64);
    let (mut out, mut replaced) = (Vec::new(), Vec::new());
    for path in &args.corpus {
        let name = path.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into());
        let dump = page::read(path)?;
        if dump.len() < PAGE_SIZE {
            bail!("{} has no page", path.display());
        }
        let corpus = &Corpus { dump: &dump, pages: args.pages as usize };
        let mut samples = Layout::ALL.map(|_| Vec::new());
        for _ in 0..args.repeat {
            for (layout, samples) in Layout::ALL.into_iter().zip(&mut samples) {
                interrupt::check()?;
                bar.set_message(format!("{name}: {}", layout.name()));
                samples.push(out_and_back(corpus, layout, args)?);
                bar.inc(1);
            }
        }
        let log_bytes = samples[2].first().map_or(0, |sample| sample.live_bytes);
        for (layout, samples) in Layout::ALL.into_iter().zip(&samples) {
            out.push(row(&name, layout, samples));
        }
        for &full in &args.full {
            interrupt::check()?;
            bar.set_message(format!("{name}: {full}% full"));
            // A small log is less full: some of its segments hold no objects for long.
            let least = SMALLEST + log_bytes * 33 / 32;
            let bytes = (log_bytes * 100 / u64::from(full)).max(least);
            let full = log_bytes as f64 * 100.0 / bytes as f64;
            replaced.push(Replaced::new(&name, full, bytes, &replace(corpus, bytes, args)?));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Report {
        command: "writeback",
        algorithm: args.algorithm.clone(),
        sealed: !args.plain,
        repeat: args.repeat,
        seed: args.seed,
        out,
        replaced,
    }
    .show(args)
}

/// The pages of a disk: those of a dump, over and over.
struct Corpus<'a> {
    dump: &'a [u8],
    pages: usize,
}

impl Corpus<'_> {
    fn page(&self, index: usize) -> &Page {
        page::page(self.dump, index % (self.dump.len() / PAGE_SIZE))
    }
}

/// What a round found.
struct Sample {
    pages: u64,
    object_bytes: u64,
    written_bytes: u64,
    live_bytes: u64,
    out_seconds: f64,
    alone_us: f64,
    together_us: f64,
    verified_pages: u64,
}

fn row(corpus: &str, layout: Layout, samples: &[Sample]) -> Out {
    let all = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<f64>>();
    let per_second = |s: &Sample| s.pages as f64 * PAGE_SIZE as f64 / s.out_seconds / 1e6;
    let (out, alone) = (all(&per_second), all(&|s| s.alone_us));
    let together = all(&|s| s.together_us);
    let (pages, objects, written) =
        samples.first().map_or((0, 0, 0), |s| (s.pages, s.object_bytes, s.written_bytes));
    Out {
        corpus: corpus.to_owned(),
        layout: layout.name(),
        pages,
        object_bytes: objects,
        written_bytes: written,
        written_per_object_byte: written as f64 / objects.max(1) as f64,
        out_mb_per_second: median(out.iter().copied()),
        out_spread: spread(&out),
        alone_us: median(alone.iter().copied()),
        alone_spread: spread(&alone),
        together_us: median(together.iter().copied()),
        together_spread: spread(&together),
        verified_pages: samples.iter().map(|s| s.verified_pages).sum(),
    }
}

fn machine() -> Result<Machine> {
    let options = MachineOptions {
        cpus: host::cpus(),
        memory: host::total_memory(),
        files: Arc::new(HostSystem),
        swap_scenario: Arc::new(host::Mmap),
        track_access: false,
    };
    Machine::new(Arc::new(host::Mmap), options).map_err(|fault| anyhow!("{fault}"))
}

/// A disk for the corpus over the first `bytes` bytes of a new file.
fn disk(
    machine: &Machine,
    file: &Path,
    corpus: &Corpus<'_>,
    layout: Layout,
    args: &WritebackArgs,
) -> Result<Arc<Disk>> {
    let make = || {
        let disk = machine.add()?;
        disk.set_algorithm(&args.algorithm)?;
        disk.set_sealed_backing(!args.plain)?;
        disk.set_backing_log(layout == Layout::Log)?;
        disk.set_backing(&file.display().to_string())?;
        disk.set_compressed_writeback(layout == Layout::Compressed)?;
        disk.set_disksize(corpus.pages as u64 * PAGE_SIZE as u64)?;
        Ok(disk)
    };
    make().map_err(|fault: ControlError| anyhow!("the disk: {fault}"))
}

fn file(dir: &Path, bytes: u64) -> Result<NamedTempFile> {
    let file = NamedTempFile::with_prefix_in("rampack-lab-", dir)
        .with_context(|| format!("cannot make a file in {}", dir.display()))?;
    file.as_file().set_len(bytes).context("cannot make the file as long as wanted")?;
    Ok(file)
}

fn store(disk: &Disk, corpus: &Corpus<'_>, index: usize, of: usize) -> Result<()> {
    let stored = disk.store_page(CPU, index as u64, corpus.page(of));
    stored.map_err(|error| anyhow!("page {index}: {error}"))
}

fn write_back(disk: &Disk) -> Result<()> {
    let all = Writeback { select: Some(Select::Any), pages: Vec::new() };
    disk.writeback(&all).map_err(|fault| anyhow!("{fault}"))
}

fn check(corpus: &Corpus<'_>, of: usize, found: &Page) -> Result<()> {
    if found != corpus.page(of) {
        bail!("a page is not what was stored");
    }
    Ok(())
}

fn out_and_back(corpus: &Corpus<'_>, layout: Layout, args: &WritebackArgs) -> Result<Sample> {
    let pages = corpus.pages;
    // A page that does not shrink takes a block and a part of one in a log.
    let file = file(&args.dir, ((2 * pages * PAGE_SIZE) as u64).max(2 * SMALLEST))?;
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
    let is_written = |index: &usize| zcomp::same_filled(corpus.page(*index)).is_none();
    let mut order: Vec<usize> = (0..pages).filter(is_written).collect();
    fastrand::Rng::with_seed(args.seed).shuffle(&mut order);
    order.truncate(ALONE);
    let mut buffer = Memory::new(TOGETHER * PAGE_SIZE).context("no memory for pages")?;
    let begun = Instant::now();
    for &index in &order {
        let into = page::page_mut(&mut buffer, 0);
        disk.load_page(CPU, index as u64, into).map_err(|error| anyhow!("{index}: {error}"))?;
        check(corpus, index, into)?;
    }
    let alone = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for first in (0..pages).step_by(TOGETHER) {
        let all = first..(first + TOGETHER).min(pages);
        let (offset, into) = ((first * PAGE_SIZE) as u64, &mut buffer[..all.len() * PAGE_SIZE]);
        let read = Operation::Read { offset, into: &mut *into };
        disk.submit(CPU, read).map_err(|error| anyhow!("{offset}: {error}"))?;
        for (index, found) in all.zip(page::pages(into)) {
            check(corpus, index, found)?;
        }
    }
    let together = begun.elapsed().as_secs_f64();
    Ok(Sample {
        pages: written,
        object_bytes: before.compressed_bytes,
        written_bytes: log.map_or(written * PAGE_SIZE as u64, |log| log.written_bytes),
        live_bytes: log.map_or(0, |log| log.live_bytes),
        out_seconds,
        alone_us: alone * 1e6 / order.len().max(1) as f64,
        together_us: together * 1e6 / pages as f64,
        verified_pages: (order.len() + pages) as u64,
    })
}

/// Replaces pages of a log of `bytes` bytes. Returns the bytes of objects, and the log, before and
/// after what counts.
fn replace(corpus: &Corpus<'_>, bytes: u64, args: &WritebackArgs) -> Result<[(u64, LogStats); 2]> {
    let pages = corpus.pages;
    let file = file(&args.dir, bytes)?;
    let machine = machine()?;
    let disk = disk(&machine, file.path(), corpus, Layout::Log, args)?;
    let mut random = fastrand::Rng::with_seed(args.seed);
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
        check(corpus, of, into)?;
    }
    Ok(seen)
}
