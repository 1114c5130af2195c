//! The results of a study.

use serde_json::{Value, json};

use super::study::{Check, Row, Study};
use crate::args::LocksSimArgs;
use crate::statistics::median;

/// A larger error, in percent, is pointed out.
const LARGE: f64 = 25.0;

/// The absolute errors of the simulation at this many threads, in percent.
fn errors(study: &Study, threads: usize) -> Value {
    let mut sizes: Vec<(f64, String)> = Vec::new();
    for row in &study.rows {
        let checks = row.checks.iter().filter(|check| check.threads == threads);
        sizes.extend(checks.map(|check| (check.error_percent.abs(), name(row))));
    }
    let largest = sizes.iter().max_by(|one, other| one.0.total_cmp(&other.0));
    json!({
        "threads": threads,
        "points": sizes.len(),
        "median_absolute_error_percent": median(sizes.iter().map(|size| size.0)),
        "maximum_absolute_error_percent": largest.map_or(0.0, |largest| largest.0),
        "maximum_at": largest.map_or("", |largest| &largest.1),
        "above_25_percent": sizes.iter().filter(|size| size.0 > LARGE).count(),
    })
}

fn name(row: &Row) -> String {
    let cell = &row.cell;
    let (workload, content, op) = (cell.workload.name(), cell.content.name(), cell.op.name());
    let counters = if cell.shared_counters { ", shared counters" } else { "" };
    let streams = cell.streams.name();
    format!("{workload} {content} {op} {}, streams {streams}{counters}", cell.scheme.name)
}

/// All results as one object.
pub fn json(study: &Study, args: &LocksSimArgs) -> Value {
    let of = |row: &Row| {
        let cell = &row.cell;
        json!({
            "workload": cell.workload.name(),
            "content": cell.content.name(),
            "op": cell.op.name(),
            "scheme": cell.scheme.name,
            "shared_counters": cell.shared_counters,
            "streams": cell.streams.name(),
        })
    };
    let with = |row: &Row, rest: Value| {
        let mut all = of(row);
        if let (Value::Object(all), Value::Object(rest)) = (&mut all, rest) {
            all.extend(rest);
        }
        all
    };
    let check = |row: &Row, check: &Check| {
        let measured = json!({
            "threads": check.threads,
            "measured": { "simulated": false, "pages_per_s": check.measured },
            "simulation": {
                "simulated": true,
                "pages_per_s": check.simulated_pages_per_s,
                "confidence": check.confidence,
            },
            "turns": check.turns,
            "error_percent": check.error_percent,
            "large_error": check.error_percent.abs() > LARGE,
        });
        with(row, measured)
    };
    let validation: Vec<Value> =
        study.rows.iter().flat_map(|row| row.checks.iter().map(|c| check(row, c))).collect();
    let predictions: Vec<Value> = study
        .rows
        .iter()
        .flat_map(|row| row.predictions.iter().map(|p| with(row, json!(p))))
        .collect();
    json!({
        "seed": args.seed,
        "contents": study.contents,
        "mean_object_bytes": study.mean_length,
        "primitives": study.primitives,
        "sections": study.sections,
        "two_threads_on_devices_of_their_own": study.beside,
        "errors": [errors(study, 1), errors(study, 2)],
        "validation": validation,
        "predictions": predictions,
    })
}
