//! The study: measurements, tests of the simulation, and predictions.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::engine::{Outcome, simulate};
use super::held::{Held, demand_of, find_out};
use super::load::{Demand, Load, Visit};
use super::published::{self, SEED_THREADS, SOCKET, SeedRow, page_fault1};
use crate::args::ZoneSimArgs;
use crate::report::{begin, step};
use crate::statistics::median;
use crate::zone::plan::Plan;
use crate::zone::run::Run;

/// Factors for the uncertainty of the times under the lock.
const HELD: [f64; 2] = [0.8, 1.2];
/// Transfer times of a line within a socket, and below between sockets, in nanoseconds.
const WITHIN: [f64; 2] = [40.0, 60.0];
const ACROSS: [f64; 2] = [110.0, 140.0];

/// The threads' work besides allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Around {
    /// The work of page_fault1 in the kernel: faults, zeroing, a limit by memory.
    PageFault1,
    /// No work: only the allocator's own time, which is the hardest case for a lock.
    Bare,
}

/// The range of results under other assumptions.
fn band(outcomes: &[Outcome]) -> Value {
    let range = |of: fn(&Outcome) -> f64| {
        let values = outcomes.iter().map(of);
        [values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max)]
    };
    json!({
        "pages_per_s": range(|outcome| outcome.pages_per_s),
        "lock_wait_percent": range(Outcome::lock_wait_percent),
        "head_wait_percent": range(|outcome| outcome.head_wait_percent),
    })
}

/// A machine of two zones.
fn machine(
    demand: &Demand,
    threads: usize,
    transfer: f64,
    seed: u64,
    load: impl Fn(usize) -> Load,
) -> Outcome {
    let zones = [threads.div_ceil(2), threads / 2];
    let mut all = Outcome::default();
    let mut before: Option<(usize, Outcome)> = None;
    for count in zones.into_iter().filter(|count| *count > 0) {
        let zone = match before {
            Some((same, outcome)) if same == count => outcome,
            _ => simulate(demand, &load(count), transfer, seed),
        };
        before = Some((count, zone));
        let part = count as f64 / threads as f64;
        all.pages_per_s += zone.pages_per_s;
        all.write_wait_percent += part * zone.write_wait_percent;
        all.read_wait_percent += part * zone.read_wait_percent;
        all.head_wait_percent += part * zone.head_wait_percent;
    }
    all
}

fn bare(own: (f64, f64), threads: usize, args: &ZoneSimArgs, stagger: bool) -> Load {
    let load = page_fault1(threads, f64::from(args.pages), args.cycles, stagger);
    Load { alloc_ns: own.0, free_ns: own.1, ..load }
}

/// Measures and simulates: the errors of the simulation, and its predictions. All that is simulated
/// has `"simulated": true`.
pub fn study(args: &ZoneSimArgs, transfer_ns: Option<f64>, plan: &Plan) -> Result<Value> {
    let bar = begin(plan.turns() + 1);
    let held = find_out(plan, bar)?;
    bar.inc_length((held.len() * args.threads.len()) as u64);
    step("curves and rows of others")?;
    let curves = published::curves(args.seed);
    let errors = curves.iter().map(|curve| {
        let errors = curve.points.iter().filter(|point| !point.given);
        json!({
            "curve": curve.name,
            "median_error_percent": median(errors.map(|point| point.error_percent.abs())),
            "worst_error_percent": curve.worst(),
        })
    });
    let rows = published::seed().iter().map(|row| seed_row(row, args)).collect::<Vec<Value>>();
    let mut predictions = Vec::new();
    for held in &held {
        for &threads in &args.threads {
            step(format!("{}, {threads} threads", held.design))?;
            for around in [Around::PageFault1, Around::Bare] {
                predictions.push(predict(held, threads as usize, around, args));
            }
        }
    }
    Ok(json!({
        "command": "zone-sim",
        "simulated": true,
        "seed": args.seed,
        "line_transfer_ns": transfer_ns,
        "assumed_line_transfer_ns": SOCKET,
        "pages": args.pages,
        "cycles": args.cycles,
        "constants": published::constants(),
        "errors": errors.collect::<Vec<Value>>(),
        "validation": curves,
        "seed_rows": rows,
        "this_machine": check_this_machine(&held, transfer_ns, args),
        "designs": held.iter().map(design).collect::<Vec<Value>>(),
        "predictions": predictions,
    }))
}

/// The measurements of one and two threads here, and the simulation. One thread calibrates it.
fn check_this_machine(held: &[Held], transfer_ns: Option<f64>, args: &ZoneSimArgs) -> Vec<Value> {
    let transfer = transfer_ns.unwrap_or(SOCKET);
    let points = held.iter().flat_map(|held| held.measured.iter().map(move |point| (held, point)));
    let check = |(held, point): (&Held, &Run)| {
        // Threads meet at the beginning of each phase.
        let load = bare(held.own_ns, point.threads, args, false);
        let simulated = simulate(&demand_of(point), &load, transfer, args.seed).pages_per_s;
        json!({
            "design": point.design,
            "threads": point.threads,
            "measured_pages_per_s": point.pages_per_s,
            "simulated_pages_per_s": simulated,
            "error_percent": 100.0 * (simulated / point.pages_per_s - 1.0),
            "simulated": true,
        })
    };
    points.map(check).collect()
}

/// The known data of a design. A page keeps all others out while its lock is held and handed off;
/// list heads, too, are held by one thread at a time.
fn design(held: &Held) -> Value {
    let heads = |visit: &Visit| visit.heads * visit.head_ns / visit.pages;
    let heads = heads(&held.demand.alloc) + heads(&held.demand.free);
    let passed = held.demand.per_page(SOCKET);
    let limit = passed.max(heads);
    json!({
        "design": held.design,
        "threads": held.threads,
        "lock_demand_ns_per_page": passed,
        "lock_held_alone_ns_per_page": held.demand.per_page(0.0),
        "head_demand_ns_per_page": heads,
        "most_pages_per_s_of_a_zone": (limit > 0.0).then(|| 1e9 / limit),
        "alloc": held.demand.alloc,
        "free": held.demand.free,
        "own_ns": { "alloc": held.own_ns.0, "free": held.own_ns.1 },
        "order0_share": held.rest.picture.order0_share,
        "unmerged_buddies": held.rest.picture.unmerged_buddies,
    })
}

/// A row of the seed and the simulation of the kernel's own design, from published times.
fn seed_row(row: &SeedRow, args: &ZoneSimArgs) -> Value {
    let simulated = |stagger| {
        let load = |threads| page_fault1(threads, f64::from(args.pages), args.cycles, stagger);
        machine(&row.kernel, SEED_THREADS, SOCKET, args.seed, load)
    };
    let kernel = simulated(true);
    json!({
        "row": row.row,
        "design": row.design,
        "published_pages_per_s": row.rate * 1e6,
        "published_lock_percent": row.lock_percent,
        // Whether its rate was an input of the simulation. Then its error proves nothing.
        "given": row.given,
        "kernel": kernel,
        // All threads begin at once.
        "kernel_lockstep": simulated(false),
        "error_percent": 100.0 * (kernel.pages_per_s / (row.rate * 1e6) - 1.0),
        "simulated": true,
    })
}

/// The prediction for a design, and its ranges: for hold times 20 % off, lines within a socket of
/// 40 to 60 ns, and both starts; and for lines of 110 to 140 ns, as if each zone's threads were on
/// both sockets.
fn predict(held: &Held, threads: usize, around: Around, args: &ZoneSimArgs) -> Value {
    let simulated = |demand: &Demand, transfer: f64, stagger: bool| {
        let load = |count| match around {
            Around::PageFault1 => page_fault1(count, f64::from(args.pages), args.cycles, stagger),
            Around::Bare => bare(held.own_ns, count, args, stagger),
        };
        machine(demand, threads, transfer, args.seed, load)
    };
    let (base, lockstep) =
        (simulated(&held.demand, SOCKET, true), simulated(&held.demand, SOCKET, false));
    let band = |factors: &[f64], transfers: [f64; 2]| {
        let mut outcomes = vec![base, lockstep];
        for &factor in factors {
            for transfer in transfers {
                for stagger in [true, false] {
                    outcomes.push(simulated(&held.demand.times(factor), transfer, stagger));
                }
            }
        }
        band(&outcomes)
    };
    let banded = around == Around::PageFault1;
    json!({
        "design": held.design,
        "threads": threads,
        "around": around,
        "simulated": true,
        "pages_per_s": base.pages_per_s,
        "lock_wait_percent": base.lock_wait_percent(),
        "read_wait_percent": base.read_wait_percent,
        "write_wait_percent": base.write_wait_percent,
        "head_wait_percent": base.head_wait_percent,
        "lockstep": lockstep,
        "one_socket": banded.then(|| band(&HELD, WITHIN)),
        "across_sockets": banded.then(|| band(&[1.0], ACROSS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_two_zones() {
        let demand = Demand { alloc: Visit::alone(16.0, 10.0), free: Visit::NONE };
        let load = page_fault1(0, 1600.0, 8, true);
        let load = |threads| Load { threads, frees: false, alloc_ns: 0.0, ..load };
        let rate = |threads| machine(&demand, threads, 50.0, 1, load).pages_per_s;
        // One thread has a zone of its own; two have one each; then each lock is full.
        let (one, two, eight) = (rate(1), rate(2), rate(8));
        assert!((two / one - 2.0).abs() < 0.01, "{one} {two}");
        assert!((eight / (2.0 * 16e9 / 210.0) - 1.0).abs() < 0.02, "{eight}");
        let odd = machine(&demand, 5, 50.0, 1, load);
        assert!(odd.lock_wait_percent() > 10.0 && odd.lock_wait_percent() < 80.0, "{odd:?}");
    }
}
