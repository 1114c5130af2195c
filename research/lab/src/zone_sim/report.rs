//! What is shown of it. Every simulated number has a `~`, and `"simulated": true` in JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::held::{Held, Source};
use super::load::Visit;
use super::published::SOCKET;
use super::study::{Around, Prediction, SEED_THREADS, Study};
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

/// Nanoseconds for which a page keeps all others out, with and without passing the lock on.
fn demand(held: &Held) -> (f64, f64) {
    (held.demand.per_page(0.0), held.demand.per_page(SOCKET))
}

/// Nanoseconds of heads of lists for a page: one at a time, too.
fn heads(held: &Held) -> f64 {
    let of = |visit: &Visit| visit.heads * visit.head_ns / visit.pages;
    of(&held.demand.alloc) + of(&held.demand.free)
}

/// One object.
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
            "fitted": curve.fitted,
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
        "errors": errors.collect::<Vec<_>>(),
        "validation": study.curves,
        "seed_rows": study.rows,
        "this_machine": study.checks,
        "designs": held.collect::<Vec<_>>(),
        "predictions": study.predictions,
    })
}

/// For people.
pub fn text(study: &Study, args: &ZoneSimArgs) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, study, args);
    text
}

fn write(text: &mut String, study: &Study, args: &ZoneSimArgs) -> std::fmt::Result {
    curves(text, study)?;
    seed(text, study)?;
    designs(text, study)?;
    if !study.checks.is_empty() {
        writeln!(
            text,
            "\nThis machine under bare load (cross-free), M pages/s: one thread calibrates, two \
             do not"
        )?;
        for check in &study.checks {
            writeln!(
                text,
                "{:<22}{:>3} measured {:>8.2}   simulated {:>9}  {:>+6.1} %",
                check.design,
                check.threads,
                check.measured_pages_per_s / 1e6,
                format!("~{:.2}", check.simulated_pages_per_s / 1e6),
                check.error_percent
            )?;
        }
    }
    predictions(text, study, args)
}

fn curves(text: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(text, "How far the simulation is off: curves that others have published")?;
    writeln!(text, "ns between two calls of all threads; (g): given, says nothing\n")?;
    for curve in &study.curves {
        let fitted = if curve.fitted { "; chosen by this curve" } else { "" };
        writeln!(
            text,
            "{:<22} largest error {:.0} %   ({}{fitted})",
            curve.name,
            curve.worst(),
            curve.model
        )?;
        for point in &curve.points {
            writeln!(
                text,
                "{:>6} cores {:>9.1} published {:>10} simulated {:>+6.1} %{}",
                point.cores,
                point.published_ns,
                format!("~{:.1}", point.simulated_ns),
                point.error_percent,
                if point.given { " (g)" } else { "" }
            )?;
        }
    }
    Ok(())
}

fn seed(text: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(
        text,
        "\nThe seed's kernels, {SEED_THREADS} threads in two zones, simulated from times in the \
         kernel that were\nchosen for patch1 and no_merge: M pages/s, percent waiting for the lock \
         and for heads\n"
    )?;
    writeln!(
        text,
        "{:<24}{:>8}{:>7}{:>7}{:>10}{:>8}{:>8}{:>8}{:>22}",
        "row", "seed", "lock", "head", "~rate", "~lock", "~head", "error", "~lockstep rate, lock"
    )?;
    for row in &study.rows {
        let head = row.published_head_percent.map_or("-".to_owned(), |head| format!("{head:.1}"));
        writeln!(
            text,
            "{:<24}{:>8.2}{:>7.1}{head:>7}{:>10}{:>8}{:>8}{:>+7.0}%{:>22}",
            row.row,
            row.published_pages_per_s / 1e6,
            row.published_lock_percent,
            format!("~{:.2}", row.kernel.pages_per_s / 1e6),
            format!("~{:.1}", row.kernel.lock_wait_percent()),
            format!("~{:.1}", row.kernel.head_wait_percent),
            row.error_percent,
            format!(
                "~{:.2}, ~{:.1}",
                row.kernel_lockstep.pages_per_s / 1e6,
                row.kernel_lockstep.lock_wait_percent()
            ),
        )?;
    }
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
    writeln!(
        text,
        "{:<22}{:>10}{:>9}{:>9}{:>12}{:>14}{:>12}{:>10}",
        "design", "times", "demand", "heads", "zone's most", "pages/visit", "order-0 %", "unmerged"
    )?;
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
            Source::Published => "published",
        };
        writeln!(
            text,
            "{:<22}{source:>10}{passed:>9.2}{:>9.2}{most:>12}{:>14}{:>12}{:>10}",
            held.design,
            heads(held),
            format!("{} {}", pages(&held.demand.alloc), pages(&held.demand.free)),
            held.order0_share.map_or("-".to_owned(), |share| format!("{:.3}", share * 100.0)),
            held.unmerged_buddies.map_or("-".to_owned(), |pairs| pairs.to_string()),
        )?;
    }
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
                    "the seed's load, which is capped by memory at 12.1 M pages/s, whatever the \
                     zone",
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
            for prediction in study.predictions.iter().filter(is) {
                writeln!(text, "{}", line(prediction))?;
            }
        }
    }
    Ok(())
}

fn line(prediction: &Prediction) -> String {
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
    let head = format!("~{:.1}", prediction.head_wait_percent);
    format!(
        "  {:<20}{:>8} {rates:<34} lock {:>6} {waits:<32} head {head:>6}",
        prediction.design,
        format!("~{:.2}", prediction.pages_per_s / 1e6),
        format!("~{:.2}", prediction.lock_wait_percent),
    )
}
