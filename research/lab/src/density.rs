//! `rampack-lab density`: how much data a byte of memory holds, when pages move by themselves.
//!
//! Each dump is stored on a disk with `auto`. Then time goes by, on a clock of the lab's own: in
//! each second some pages are read and the disk has its share of CPU time, until no more pages
//! move. The same pages go to the kernel's zram.
//!
//! [`swap`]: the same for the cache of swap areas.

mod swap;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use machine::Machine;
use serde_json::{Value, json};
use units::{Cpu, PAGE_SIZE};
use zram::{Budgets, Disk, NoHostFiles};

use crate::args::DensityArgs;
use crate::corpus::anonymous_bytes;
use crate::page::{Corpus, SEED};
use crate::pages::{Device, Target, machine};
use crate::report::{begin, step};
use crate::statistics::percentiles;
use crate::sys::memory;
use crate::{interrupt, page};

const CPU: Cpu = Cpu(0);
/// A page that was not used for this many seconds is cold.
const COLD: u32 = 64;
/// The most cold reads that are timed.
const READS: usize = 4096;
/// No page moves any more when none moved for this many seconds: longer than any tier waits at
/// first.
const REST: u32 = 320;
/// The most seconds until no more pages move.
const PATIENCE: u32 = 3600;
/// Bytes of the kernel's table for a page (`struct zram_table_entry` on 64 bits).
const KERNEL_ENTRY: u64 = 16;

/// Runs the command.
pub fn run(args: &DensityArgs) -> Result<Value> {
    let kernel = args
        .kernel
        .iter()
        .flat_map(|device| args.kernel_algorithms.iter().map(move |algorithm| (device, algorithm)));
    let kernel: Vec<_> = kernel.collect();
    let each = if args.swap { swap::CODECS.len() } else { args.idle.len() + kernel.len() };
    begin((args.corpus.len() * each) as u64);
    let mut runs = Vec::new();
    for path in &args.corpus {
        let mut corpus = Corpus::read(path)?;
        corpus.pages = corpus.pages.min(args.pages.map_or(usize::MAX, |it| it as usize));
        if args.swap {
            runs.extend(swap::runs(&corpus, args)?);
            continue;
        }
        let mut peers = Vec::new();
        for (device, algorithm) in &kernel {
            step(format!("{}: the kernel's {algorithm}", corpus.name))?;
            peers.push(measure_kernel(&corpus, device, algorithm)?);
        }
        for &idle in &args.idle {
            step(format!("{}: {idle}% idle", corpus.name))?;
            let ours = measure(&corpus, idle, args)?;
            runs.extend(peers.iter().map(|peer| peer.beside(&ours)));
            runs.extend(peers.is_empty().then_some(ours));
        }
    }
    Ok(json!({
        "command": "density",
        // The codec of pages that are in use.
        "algorithm": (!args.swap).then_some(&args.algorithm),
        "cpu_percent": args.cpu,
        "runs": runs,
    }))
}

/// Nanoseconds for each page.
fn each(begun: Instant, pages: usize) -> f64 {
    begun.elapsed().as_nanos() as f64 / pages.max(1) as f64
}

/// What the kernel's device takes for a dump. A store and a load are system calls, past the page
/// cache.
struct Peer {
    algorithm: String,
    data_per_byte: f64,
    store_ns: f64,
    load_ns: f64,
}

impl Peer {
    /// A run of ours beside it.
    fn beside(&self, ours: &Value) -> Value {
        let mut run = ours.clone();
        let density = run["data_per_byte"].as_f64().unwrap_or(f64::NAN);
        run["kernel_algorithm"] = json!(self.algorithm);
        run["kernel_data_per_byte"] = json!(self.data_per_byte);
        run["over_kernel"] = json!(density / self.data_per_byte);
        run["kernel_store_ns"] = json!(self.store_ns);
        run["kernel_load_ns"] = json!(self.load_ns);
        run
    }
}

fn measure_kernel(corpus: &Corpus, path: &Path, algorithm: &str) -> Result<Peer> {
    let device = Device::of_kernel(path, algorithm, corpus.pages)?;
    // Memory of a page for O_DIRECT.
    let mut buffer = memory(PAGE_SIZE).context("no memory for a page")?;
    let begun = Instant::now();
    for index in 0..corpus.pages {
        buffer.copy_from_slice(corpus.page(index));
        device.store(index as u64, page::page(&buffer, 0))?;
    }
    let store_ns = each(begun, corpus.pages);
    let taken = device.figures().pool.context("the kernel tells no mem_used_total")?;
    let begun = Instant::now();
    for index in 0..corpus.pages {
        device.load(index as u64, page::page_mut(&mut buffer, 0))?;
    }
    let load_ns = each(begun, corpus.pages);
    for index in 0..corpus.pages {
        device.load(index as u64, page::page_mut(&mut buffer, 0))?;
        corpus.check(index, &buffer)?;
    }
    let all = taken + corpus.pages as u64 * KERNEL_ENTRY;
    let data_per_byte = corpus.bytes() as f64 / all.max(1) as f64;
    Ok(Peer { algorithm: algorithm.to_owned(), data_per_byte, store_ns, load_ns })
}

/// Resident bytes without pages of files. The code that the first device of a process loads would
/// count as memory of this device.
fn resident() -> Result<u64> {
    anonymous_bytes(std::process::id())
}

fn disk(machine: &Machine, pages: usize, args: &DensityArgs) -> Result<Arc<Disk>> {
    let disk = machine.add()?;
    disk.set_algorithm(&args.algorithm)?;
    disk.set_budgets(Budgets { cpu_percent: args.cpu, ..Budgets::default() })?;
    disk.set_auto(true)?;
    disk.set_disksize((pages * PAGE_SIZE) as u64)?;
    Ok(disk)
}

/// The second in which nine tenths of what the memory shrank by were gained.
fn when_most(taken: &[u64]) -> Option<usize> {
    let (first, last) = (*taken.first()?, *taken.last()?);
    let most = first.saturating_sub(first.saturating_sub(last) / 10 * 9);
    taken.iter().position(|bytes| *bytes <= most)
}

/// Stores a dump, lets time go by, and measures. Of its pages, `idle` percent are not used; the
/// others are, every four seconds.
fn measure(corpus: &Corpus, idle: u32, args: &DensityArgs) -> Result<Value> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut buffer = memory(PAGE_SIZE).context("no memory for a page")?;
    let mut last_used = vec![0; corpus.pages];
    let mut times: Vec<f64> = Vec::with_capacity(READS);
    // What is near in time is not near in memory.
    let mut used: Vec<usize> = (0..corpus.pages).collect();
    random.shuffle(&mut used);
    used.truncate(corpus.pages - corpus.pages * idle as usize / 100);
    let base = resident()?;
    let machine = machine(Arc::new(NoHostFiles), true)?;
    // The clock of a machine is never at its beginning.
    let start = 1000;
    machine.set_clock(start);
    let disk = disk(&machine, corpus.pages, args)?;
    let failed = |index: usize, error| anyhow!("page {index} of {}: {error}", corpus.name);
    let read = |index: usize, buffer: &mut [u8]| {
        let loaded = disk.load_page(CPU, index as u64, page::page_mut(buffer, 0));
        loaded.map_err(|error| failed(index, error))
    };

    let begun = Instant::now();
    for index in 0..corpus.pages {
        let stored = disk.store_page(CPU, index as u64, corpus.page(index));
        stored.map_err(|error| failed(index, error))?;
    }
    let store_ns = each(begun, corpus.pages);

    let (mut still, mut moved, mut second) = (0, 0, 0);
    let mut taken = vec![disk.stats().pool_bytes];
    while second < PATIENCE && still < REST {
        interrupt::check()?;
        second += 1;
        machine.set_clock(start + second);
        for &index in used.iter().filter(|_| second.is_multiple_of(4)) {
            last_used[index] = second;
            read(index, &mut buffer)?;
        }
        let waits = disk.move_pages(1_000_000_000, &host::thread_cpu_time)?;
        let tiers = disk.tier_stats();
        let now = tiers.tiers.iter().map(|tier| tier.moved).sum::<u64>();
        still = if waits || now != moved { 0 } else { still + 1 };
        moved = now;
        taken.push(disk.stats().pool_bytes);
    }
    machine.frames().drain();
    let rss_bytes = resident()?.saturating_sub(base);
    let (stats, tiers) = (disk.stats(), disk.tier_stats());

    let is_cold = |index: &usize| second - last_used[*index] >= COLD;
    let mut cold: Vec<usize> = (0..corpus.pages).filter(is_cold).collect();
    random.shuffle(&mut cold);
    for &index in cold.iter().take(READS) {
        let begun = Instant::now();
        read(index, &mut buffer)?;
        times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        corpus.check(index, &buffer)?;
    }
    let begun = Instant::now();
    (0..corpus.pages).try_for_each(|index| read(index, &mut buffer))?;
    let load_ns = each(begun, corpus.pages);
    for index in 0..corpus.pages {
        read(index, &mut buffer)?;
        corpus.check(index, &buffer)?;
    }
    let data_bytes = corpus.bytes();
    Ok(json!({
        "corpus": corpus.name,
        "idle_percent": idle,
        "seconds": second,
        "seconds_to_90_percent": when_most(&taken),
        "data_bytes": data_bytes,
        "rss_bytes": rss_bytes,
        "pool_bytes": stats.pool_bytes,
        "compressed_bytes": stats.compressed_bytes,
        "engine_bytes": stats.pool_bytes + stats.overhead_bytes + stats.metadata_bytes,
        "data_per_byte": data_bytes as f64 / rss_bytes.max(1) as f64,
        "store_ns": store_ns,
        "load_ns": load_ns,
        "cold_read_us": percentiles(times),
        "background_cpu_percent": tiers.cpu_ns as f64 / f64::from(second.max(1)) / 1e7,
        "moved_pages": moved,
        "used_too_soon": tiers.tiers.iter().map(|tier| tier.too_soon).sum::<u64>(),
        "verified_pages": corpus.pages,
        "pages": corpus.pages,
    }))
}
