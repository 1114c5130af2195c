//! The results of `zone-sim`. All that is simulated has `"simulated": true`.

use serde_json::{Value, json};

use super::held::Held;
use super::load::Visit;
use super::published::{SOCKET, constants};
use super::study::Study;
use crate::args::ZoneSimArgs;
use crate::statistics::median;

fn visit(visit: &Visit) -> Value {
    json!({
        "pages_per_visit": visit.pages.is_finite().then_some(visit.pages),
        "lockless": visit.lockless,
        "reads": visit.reads,
        "read_held_ns": visit.read_ns,
        "write_held_ns": visit.write_ns,
        "heads_per_visit": visit.heads,
        "head_held_ns": visit.head_ns,
    })
}

/// Nanoseconds for which a page keeps all others out, with and without the hand-off.
fn demand(held: &Held) -> (f64, f64) {
    (held.demand.per_page(0.0), held.demand.per_page(SOCKET))
}

/// Nanoseconds of list heads for a page. They, too, are held by one thread at a time.
fn heads(held: &Held) -> f64 {
    let of = |visit: &Visit| visit.heads * visit.head_ns / visit.pages;
    of(&held.demand.alloc) + of(&held.demand.free)
}

/// All results as one object.
pub fn json(study: &Study, args: &ZoneSimArgs) -> Value {
    let held = study.held.iter().map(|held| {
        let (bare, passed) = demand(held);
        let limit = passed.max(heads(held));
        json!({
            "design": held.design,
            "source": held.source,
            "threads": held.threads,
            "lock_demand_ns_per_page": passed,
            "lock_held_alone_ns_per_page": bare,
            "head_demand_ns_per_page": heads(held),
            "most_pages_per_s_of_a_zone": (limit > 0.0).then(|| 1e9 / limit),
            "alloc": visit(&held.demand.alloc),
            "free": visit(&held.demand.free),
            "own_ns": { "alloc": held.own_ns.0, "free": held.own_ns.1 },
            "order0_share": held.order0_share,
            "unmerged_buddies": held.unmerged_buddies,
        })
    });
    let errors = study.curves.iter().map(|curve| {
        let errors = curve.points.iter().filter(|point| !point.given);
        json!({
            "curve": curve.name,
            "median_error_percent": median(errors.map(|point| point.error_percent.abs())),
            "worst_error_percent": curve.worst(),
        })
    });
    json!({
        "command": "zone-sim",
        "simulated": true,
        "seed": args.seed,
        "line_transfer_ns": study.transfer_ns,
        "assumed_line_transfer_ns": SOCKET,
        "pages": args.pages,
        "cycles": args.cycles,
        "constants": constants(),
        "errors": errors.collect::<Vec<_>>(),
        "validation": study.curves,
        "seed_rows": study.rows,
        "this_machine": study.checks,
        "designs": held.collect::<Vec<_>>(),
        "predictions": study.predictions,
    })
}
