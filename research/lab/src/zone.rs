//! `rampack-lab zone` measures designs of page allocators under one load.
//!
//! Every call goes to a zone as the engine's do, through `Arc<dyn Frames>`. The designs take turns,
//! each turn on a fresh zone. *Timed* turns have no probe at the locks and measure the time of
//! calls. *Listened* turns record the locks. So the times contain no cost of probes, and the lock
//! figures contain none of the times.
//!
//! * [`designs`]: the designs, and a control.
//! * [`workload`], [`workers`]: the threads' work.
//! * [`lock_stat`], [`histogram`], [`ticks`], [`picture`], [`ping_pong`]: the instruments.
//! * [`plan`]: the turns; [`run`]: their results.

pub mod designs;
mod histogram;
pub mod lock_stat;
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

use crate::args::{ZoneArgs, name_of, threads};
use plan::Plan;
pub use workload::Workload;

/// Runs the command.
pub fn run(args: &ZoneArgs) -> Result<Value> {
    let cpus = host::allowed_cpus();
    for (at, workload) in args.workload.iter().enumerate() {
        if args.workload[..at].contains(workload) {
            bail!("--workload {}: it is there already", name_of(workload));
        }
    }
    let plan = Plan {
        designs: designs::named(&args.design)?,
        threads: threads(&args.threads, cpus.len(), cpus.len().clamp(1, 2))?,
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
pub fn line_transfer(cpus: &[usize]) -> Result<Option<f64>> {
    match cpus {
        [first, second, ..] => ping_pong::measure([*first, *second]).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
