//! `rampack-lab backing` reads and writes pages of a file at random, as writeback and reads of
//! backed pages do: one by one and in batches, by io_uring, by plain calls, and by io_uring with
//! each page encrypted and authenticated.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use backing::Options;
use block::{BlockDevice, Job, Operation};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use units::{Cpu, PAGE_SIZE};

use crate::args::BackingArgs;
use crate::interrupt;
use crate::report::{begin, step};
use crate::statistics::median;
use crate::sys::Memory;

/// Pages under way at once.
const BATCHES: [usize; 4] = [1, 8, 32, 128];
/// The ways to do it.
const WAYS: [&str; 3] = ["io_uring", "plain", "sealed io_uring"];
/// The seed of the offsets.
const SEED: u64 = 0x0062_6163_6b69_6e67;

/// Pages a second of one way, one direction and one batch size.
#[derive(Serialize)]
struct Row {
    way: &'static str,
    direction: &'static str,
    batch: usize,
    median: f64,
    samples: Vec<f64>,
}

/// Runs the command.
pub fn run(args: &BackingArgs) -> Result<Value> {
    let file = new_file(&args.dir, args.size)?;
    let mut rows = Vec::new();
    for way in WAYS {
        for direction in ["read", "write"] {
            for batch in BATCHES {
                rows.push(Row { way, direction, batch, median: 0.0, samples: Vec::new() });
            }
        }
    }
    fill(&*open(file.path(), "plain")?)?;
    let time = Duration::from_millis(args.milliseconds.into());
    let mut random = fastrand::Rng::with_seed(SEED);
    begin(u64::from(args.repeat) * rows.len() as u64);
    for _ in 0..args.repeat {
        for way in WAYS {
            let mut device = open(file.path(), way)?;
            if way.starts_with("sealed") {
                device = rampack::sealed(device, &host::Mmap, u64::MAX, "the file")
                    .map_err(|fault| anyhow!("{fault}"))?;
                // A block that it has not written reads as zeroes, without the file.
                fill(&*device)?;
            }
            for row in rows.iter_mut().filter(|row| row.way == way) {
                step(way)?;
                let rate = turn(&*device, row.direction == "write", row.batch, time, &mut random)?;
                row.samples.push(rate);
            }
        }
    }
    for row in &mut rows {
        row.median = median(row.samples.iter().copied());
    }
    Ok(json!({
        "command": "backing",
        "size_bytes": args.size,
        "milliseconds": args.milliseconds,
        "repeat": args.repeat,
        "rows": rows,
    }))
}

/// Makes a file of this length, which is removed at the end.
pub fn new_file(dir: &Path, bytes: u64) -> Result<NamedTempFile> {
    let file = NamedTempFile::with_prefix_in("rampack-lab-", dir)
        .with_context(|| format!("cannot make a file in {}", dir.display()))?;
    file.as_file().set_len(bytes).context("cannot make the file as long as wanted")?;
    Ok(file)
}

/// Opens the file past the page cache. One user at a time has it.
fn open(path: &Path, way: &str) -> Result<Arc<dyn BlockDevice>> {
    let options = Options { rings: 1, io_uring: way != "plain", ..Options::default() };
    backing::open(path, options).map_err(|fault| anyhow!("{fault}"))
}

/// Writes the whole file, so that its blocks exist.
fn fill(device: &dyn BlockDevice) -> Result<()> {
    const PIECE: usize = 64 * PAGE_SIZE;
    let memory = Memory::new(PIECE)?;
    let bytes = device.geometry().bytes;
    for offset in (0..bytes).step_by(PIECE) {
        interrupt::check()?;
        let length = PIECE.min((bytes - offset) as usize);
        let write = Operation::Write { offset, from: &memory[..length] };
        device.submit(Cpu(0), write).map_err(|error| anyhow!("writing at {offset}: {error}"))?;
    }
    Ok(())
}

/// Moves batches of pages for the given time. Returns pages a second.
fn turn(
    device: &dyn BlockDevice,
    is_write: bool,
    batch: usize,
    time: Duration,
    random: &mut fastrand::Rng,
) -> Result<f64> {
    let pages = device.geometry().bytes / PAGE_SIZE as u64;
    let mut memory = Memory::new(batch * PAGE_SIZE)?;
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let mut jobs: Vec<Job<'_>> = Vec::with_capacity(batch);
        for page in memory.chunks_exact_mut(PAGE_SIZE) {
            let offset = random.u64(..pages) * PAGE_SIZE as u64;
            jobs.push(Job::new(match is_write {
                true => Operation::Write { offset, from: page },
                false => Operation::Read { offset, into: page },
            }));
        }
        device.submit_all(Cpu(0), &mut jobs);
        for job in jobs {
            job.result.map_err(|error| anyhow!("the file: {error}"))?;
        }
        done += batch;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}
