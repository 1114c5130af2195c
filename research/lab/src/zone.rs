//! `rampack-lab zone` measures designs of page allocators under one load.
//!
//! Every call goes to a zone as the engine's do, through `Arc<dyn Frames>`. The designs take turns,
//! each turn on a fresh zone. There are three kinds of turns. *Timed* turns have no probe at the
//! locks and measure the time of calls. *Sampled* turns time each call by itself, for percentiles.
//! *Listened* turns record the locks. So the times contain no cost of sampling or of probes, and
//! the lock figures contain none of the times.
//!
//! * [`designs`]: the designs; [`pcp_only`], [`mutex_buddy`]: controls.
//! * [`workload`], [`mode`], [`workers`], [`meeting`]: the threads' work.
//! * [`meter`], [`lock_stat`], [`histogram`], [`ticks`], [`picture`], [`ping_pong`]: the
//!   instruments.
//! * [`plan`]: the turns; [`run`]: their results; [`report`]: output.

pub mod designs;
mod histogram;
pub mod lock_stat;
mod meeting;
mod meter;
pub mod mode;
mod mutex_buddy;
mod pcp_only;
mod picture;
pub mod ping_pong;
pub mod plan;
mod report;
pub mod run;
mod ticks;
mod workers;
pub mod workload;

use anyhow::{Result, bail};
use serde_json::Value;
use units::{FRAMES_PER_PAGEBLOCK, PAGE_SIZE};

use crate::args::ZoneArgs;
pub use mode::Mode;
use plan::Plan;
pub use workload::{Start, Workload};

/// Runs the command.
///
/// # Errors
/// Two options contradict each other, memory is out, or a zone allocates wrong frames.
pub fn run(args: &ZoneArgs) -> Result<Value> {
    let cpus = host::allowed_cpus();
    let threads = threads(&args.threads, &cpus)?;
    let designs = designs::named(&args.design)?;
    for (at, workload) in args.workload.iter().enumerate() {
        if args.workload[..at].contains(workload) {
            bail!("--workload {}: it is there already", workload.name());
        }
    }
    let plan = Plan {
        designs,
        threads,
        workloads: args.workload.clone(),
        mode: args.mode,
        start: args.start,
        frames: frames(args)?,
        repeat: args.repeat as usize,
        cycles: args.cycles,
        batch: args.batch.map(|n| n as usize),
        pcp: args.pcp.map(|n| n as usize),
        give_back: args.give_back,
        seed: args.seed,
        cpus: cpus.clone(),
    };
    plan.check()?;
    let ping_pong_ns = line_transfer(&cpus)?;
    let runs = plan.measure(crate::report::begin(plan.turns()))?;
    report::json(args, &plan, ping_pong_ns, &runs)
}

/// Transfer time of a line between the first two CPUs. `None` with one CPU.
///
/// # Errors
/// A thread cannot run on its CPU.
pub fn line_transfer(cpus: &[usize]) -> Result<Option<f64>> {
    match cpus {
        [first, second, ..] => ping_pong::measure([*first, *second]).map(Some),
        _ => Ok(None),
    }
}

fn threads(asked: &[u32], cpus: &[usize]) -> Result<Vec<usize>> {
    let there = cpus.len();
    if asked.is_empty() {
        return Ok((1..=there.clamp(1, 2)).collect());
    }
    let mut threads: Vec<usize> = Vec::new();
    for n in asked.iter().map(|n| *n as usize) {
        if n > there {
            bail!(
                "--threads {n}: there are {there} CPUs, and threads that share one measure the \
                 scheduler; `rampack-lab zone-sim` simulates more"
            );
        }
        if threads.contains(&n) {
            bail!("--threads {n}: it is there already");
        }
        threads.push(n);
    }
    Ok(threads)
}

fn frames(args: &ZoneArgs) -> Result<Option<u32>> {
    let frames = match (args.frames, args.size) {
        (Some(frames), _) => u64::from(frames),
        (None, Some(bytes)) => bytes / PAGE_SIZE as u64,
        (None, None) => return Ok(None),
    };
    match u32::try_from(frames).ok().filter(|frames| *frames <= 1 << 28) {
        Some(frames) => Ok(Some(frames / FRAMES_PER_PAGEBLOCK * FRAMES_PER_PAGEBLOCK)),
        None => bail!("--size: {frames} frames; a zone here has at most 268435456: 1T"),
    }
}

#[cfg(test)]
mod tests;
