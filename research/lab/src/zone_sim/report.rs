//! The results of `zone-sim`. Every simulated number has a `~`, and `"simulated": true` in JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::held::{Held, Source};
use super::load::Visit;
use super::published::{SEED_THREADS, SOCKET, constants};
use super::study::{Around, Prediction, Study};
use crate::args::ZoneSimArgs;
use crate::statistics::median;
use crate::table::{self, maybe, maybe_count};

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

/// The results as text.
pub fn text(study: &Study, args: &ZoneSimArgs) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, study, args);
    text
}

fn write(text: &mut String, study: &Study, args: &ZoneSimArgs) -> std::fmt::Result {
    curves(text, study)?;
    writeln!(text, "\nConstants, none of them fitted to what comes out\n")?;
    let mut table = table::unnamed();
    for constant in constants() {
        table.add_row([constant.name, &constant.value, constant.source]);
    }
    text.push_str(&table::text(table, &[0, 2]));
    seed(text, study)?;
    designs(text, study)?;
    if !study.checks.is_empty() {
        writeln!(
            text,
            "\nThis machine under bare load (cross-free), M pages/s: one thread calibrates, two \
             do not"
        )?;
        let mut table = table::unnamed();
        for check in &study.checks {
            table.add_row([
                check.design.to_string(),
                check.threads.to_string(),
                format!("measured {:>8.2}", check.measured_pages_per_s / 1e6),
                format!("simulated {:>9}", format!("~{:.2}", check.simulated_pages_per_s / 1e6)),
                format!("{:+.1} %", check.error_percent),
            ]);
        }
        text.push_str(&table::text(table, &[0]));
    }
    predictions(text, study, args)
}

fn curves(text: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(text, "How far the simulation is off: curves that others have published")?;
    writeln!(text, "ns between two calls of all threads; (g): given, says nothing\n")?;
    for curve in &study.curves {
        writeln!(
            text,
            "{:<22} largest error {:.0} %   ({})",
            curve.name,
            curve.worst(),
            curve.model
        )?;
        let mut table = table::unnamed();
        for point in &curve.points {
            table.add_row([
                format!("{:>6} cores", point.cores),
                format!("{:.1} published", point.published_ns),
                format!("~{:.1} simulated", point.simulated_ns),
                format!("{:+.1} %", point.error_percent),
                (if point.given { "(g)" } else { "" }).to_owned(),
            ]);
        }
        text.push_str(&table::text(table, &[4]));
    }
    Ok(())
}

fn seed(text: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(
        text,
        "\nThe seed's kernels, {SEED_THREADS} threads in two zones, simulated from published \
         times: M pages/s,\npercent waiting for the lock. (g): given, says nothing\n"
    )?;
    let mut table =
        table::table(["row", "seed", "lock", "~rate", "~lock", "error", "~lockstep rate, lock"]);
    for row in &study.rows {
        let lockstep = &row.kernel_lockstep;
        table.add_row([
            row.row.to_string(),
            format!("{:.2}", row.published_pages_per_s / 1e6),
            format!("{:.1}", row.published_lock_percent),
            format!("~{:.2}", row.kernel.pages_per_s / 1e6),
            format!("~{:.1}", row.kernel.lock_wait_percent()),
            format!("{:+.0}%{}", row.error_percent, if row.given { " (g)" } else { "" }),
            format!("~{:.2}, ~{:.1}", lockstep.pages_per_s / 1e6, lockstep.lock_wait_percent()),
        ]);
    }
    text.push_str(&table::text(table, &[0]));
    Ok(())
}

fn designs(text: &mut String, study: &Study) -> std::fmt::Result {
    let here = study.transfer_ns.map_or("not known".to_owned(), |ns| format!("{ns:.0} ns"));
    writeln!(
        text,
        "\nLock demand: ns for which a page, allocated and freed, keeps others out of its zone. A \
         line moves\nin {here} here; simulated sockets have {SOCKET:.0} ns. Passing the lock on is \
         in the demand.\n"
    )?;
    let mut table = table::table([
        "design",
        "times",
        "demand",
        "heads",
        "zone's most",
        "pages/visit",
        "order-0 %",
        "unmerged",
    ]);
    for held in &study.held {
        let (_, passed) = demand(held);
        let limit = passed.max(heads(held));
        let most = if limit > 0.0 { format!("~{:.1} M/s", 1e3 / limit) } else { "-".to_owned() };
        let pages = |visit: &Visit| match visit.pages.is_finite() {
            true => format!("{:.1}", visit.pages),
            false => "-".to_owned(),
        };
        let source = match held.source {
            Source::Measured => "measured",
            Source::Given => "given",
        };
        table.add_row([
            held.design.to_string(),
            source.to_owned(),
            format!("{passed:.2}"),
            format!("{:.2}", heads(held)),
            most,
            format!("{} {}", pages(&held.demand.alloc), pages(&held.demand.free)),
            maybe(held.order0_share.map(|share| share * 100.0), 3),
            maybe_count(held.unmerged_buddies),
        ]);
    }
    text.push_str(&table::text(table, &[0]));
    Ok(())
}

fn predictions(text: &mut String, study: &Study, args: &ZoneSimArgs) -> std::fmt::Result {
    for around in [Around::PageFault1, Around::Bare] {
        writeln!(
            text,
            "\nSIMULATED, {}: {}\nM pages/s; percent of time waiting for the lock and for heads{}",
            around.name(),
            match around {
                Around::PageFault1 =>
                    "the seed's load: a thread's own time for a page is that of 112 threads there, \
                     whatever the zone",
                Around::Bare => "the allocator's own time only, no cap",
            },
            match around {
                Around::PageFault1 =>
                    "\n[held times +-20 %, lines of 40 to 60 ns, both ways to begin], {lines of \
                     110 to 140 ns}",
                Around::Bare => "",
            }
        )?;
        for &threads in &args.threads {
            writeln!(text, "{threads} thread(s)")?;
            let is = |p: &&Prediction| p.around == around && p.threads == threads as usize;
            let mut table = table::unnamed();
            for prediction in study.predictions.iter().filter(is) {
                table.add_row(cells(prediction));
            }
            text.push_str(&table::text(table, &[0, 2, 4]));
        }
    }
    Ok(())
}

fn cells(prediction: &Prediction) -> [String; 6] {
    let mega = |[low, high]: [f64; 2]| format!("~{:.2} ~{:.2}", low / 1e6, high / 1e6);
    let percent = |[low, high]: [f64; 2]| format!("~{low:.1} ~{high:.1}");
    let (mut rates, mut waits) = (String::new(), String::new());
    if let (Some(one), Some(across)) = (&prediction.one_socket, &prediction.across_sockets) {
        rates = format!("[{}] {{{}}}", mega(one.pages_per_s), mega(across.pages_per_s));
        waits = format!(
            "[{}] {{{}}}",
            percent(one.lock_wait_percent),
            percent(across.lock_wait_percent)
        );
    }
    [
        format!("  {}", prediction.design),
        format!("~{:.2}", prediction.pages_per_s / 1e6),
        rates,
        format!("lock {:>6}", format!("~{:.2}", prediction.lock_wait_percent)),
        waits,
        format!("head {:>6}", format!("~{:.1}", prediction.head_wait_percent)),
    ]
}
