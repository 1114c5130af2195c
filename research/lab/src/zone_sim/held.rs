//! The times for which locks are held, measured.

use anyhow::Result;
use indicatif::ProgressBar;
use units::FRAMES_PER_PAGEBLOCK;

use super::load::{Demand, Visit};
use crate::args::ZoneSimArgs;
use crate::zone::Workload;
use crate::zone::designs;
use crate::zone::plan::Plan;
use crate::zone::run::Run;

/// The known data of a design.
pub struct Held {
    pub design: &'static str,
    /// Number of threads in the measurement.
    pub threads: usize,
    /// The demand of a page on the zone.
    pub demand: Demand,
    /// A thread's own time for a page, allocating and freeing, in nanoseconds.
    pub own_ns: (f64, f64),
    /// Measured under page-fault1.
    pub rest: Run,
    /// Measured under cross-free, with each number of threads.
    pub measured: Vec<Run>,
}

/// The demand of a page on the zone.
pub fn demand_of(run: &Run) -> Demand {
    Demand { alloc: run.alloc_visits, free: run.free_visits }
}

/// What is measured of the designs that the arguments ask for.
pub fn plan(args: &ZoneSimArgs, cpus: Vec<usize>) -> Result<Plan> {
    let plan = Plan {
        designs: designs::named(&args.design)?,
        threads: (1..=cpus.len().clamp(1, 2)).collect(),
        workloads: vec![Workload::CrossFree, Workload::PageFault1],
        frames: Some(args.frames / FRAMES_PER_PAGEBLOCK * FRAMES_PER_PAGEBLOCK),
        repeat: args.repeat as usize,
        cycles: 4,
        cpus,
    };
    plan.check()?;
    Ok(plan)
}

/// Measures on up to two threads that free each other's frames. So the zone's own memory is as far
/// from the lock's holder as on a large machine.
pub fn find_out(plan: &Plan, bar: &ProgressBar) -> Result<Vec<Held>> {
    let runs = plan.measure(bar)?;
    let most = plan.threads.last().copied().unwrap_or(1);
    let mut all = Vec::new();
    for design in &plan.designs {
        let run = |workload: Workload, threads: usize| {
            runs.iter().find(|run: &&Run| {
                (run.design, run.workload, run.threads) == (design.name, workload, threads)
            })
        };
        let (Some(alone), Some(cross), Some(rest)) = (
            run(Workload::CrossFree, 1),
            run(Workload::CrossFree, most),
            run(Workload::PageFault1, most),
        ) else {
            continue;
        };
        let points = plan.threads.iter().filter_map(|&n| run(Workload::CrossFree, n).cloned());
        all.push(Held {
            design: design.name,
            threads: most,
            demand: demand_of(cross),
            own_ns: own(alone),
            rest: rest.clone(),
            measured: points.collect(),
        });
    }
    Ok(all)
}

/// A page's time on one thread, less the time under the lock.
fn own(run: &Run) -> (f64, f64) {
    let held = |visit: Visit| {
        let each = visit.reads * visit.read_ns + (1.0 - visit.reads) * visit.write_ns;
        (each + visit.heads * visit.head_ns) / visit.pages
    };
    let rest = |ns: Option<f64>, visit| (ns.unwrap_or(0.0) - held(visit)).max(0.5);
    (rest(run.alloc_ns, run.alloc_visits), rest(run.free_ns, run.free_visits))
}
