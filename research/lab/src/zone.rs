//! `rampack-lab zone` measures designs of page allocators under one load.
//!
//! Every call goes to a zone as the engine's do, through `Arc<dyn Frames>`. The designs take turns,
//! each turn on a fresh zone. *Timed* turns have no probe at the locks and measure the time of
//! calls. *Listened* turns record the locks. So the times contain no cost of probes, and the lock
//! figures contain none of the times.
//!
//! * [`designs`]: the designs; [`pcp_only`]: a control.
//! * [`workload`], [`workers`]: the threads' work.
//! * [`lock_stat`], [`histogram`], [`ticks`], [`picture`], [`ping_pong`]: the instruments.
//! * [`plan`]: the turns; [`run`]: their results.

pub mod designs;
mod histogram;
pub mod lock_stat;
mod pcp_only;
mod picture;
pub mod ping_pong;
pub mod plan;
pub mod run;
mod ticks;
mod workers;
pub mod workload;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use units::FRAMES_PER_PAGEBLOCK;

use crate::args::ZoneArgs;
use plan::Plan;
pub use workload::Workload;

/// Runs the command.
///
/// # Errors
/// Two options contradict each other, memory is out, or a zone allocates wrong frames.
pub fn run(args: &ZoneArgs) -> Result<Value> {
    let cpus = host::allowed_cpus();
    for (at, workload) in args.workload.iter().enumerate() {
        if args.workload[..at].contains(workload) {
            bail!("--workload {}: it is there already", workload.name());
        }
    }
    let plan = Plan {
        designs: designs::named(&args.design)?,
        threads: threads(&args.threads, &cpus)?,
        workloads: args.workload.clone(),
        frames: args.frames.map(|frames| frames / FRAMES_PER_PAGEBLOCK * FRAMES_PER_PAGEBLOCK),
        repeat: args.repeat as usize,
        cycles: args.cycles,
        cpus,
    };
    plan.check()?;
    let line_transfer_ns = line_transfer(&plan.cpus)?;
    let runs = plan.measure(crate::report::begin(plan.turns()))?;
    Ok(json!({
        "command": "zone",
        "dispatch": "Arc<dyn Frames>, as in the engine",
        "cpus": plan.cpus.len(),
        "line_transfer_ns": line_transfer_ns,
        "repeat": plan.repeat,
        "cycles": plan.cycles,
        "runs": runs,
    }))
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

#[cfg(test)]
mod tests;
