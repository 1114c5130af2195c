//! The results of a study.

use std::fmt::Write;

use serde_json::{Value, json};

use super::study::{Check, Row, Study};
use crate::args::LocksSimArgs;
use crate::statistics::median;

/// A larger error, in percent, is pointed out.
const LARGE: f64 = 25.0;

/// The errors of the simulation.
pub struct Errors {
    /// The median of the absolute errors, in percent.
    pub median: f64,
    /// The largest absolute error, in percent.
    pub maximum: f64,
    /// The row of the largest error.
    pub of: String,
    /// Number of errors.
    pub count: usize,
    /// Number of errors above 25 %.
    pub large: usize,
}

/// The errors at `threads` threads of the rows that `counts` accepts.
pub fn errors(study: &Study, threads: usize, counts: impl Fn(&Row) -> bool) -> Errors {
    let mut sizes = Vec::new();
    let (mut maximum, mut of) = (0.0, String::new());
    for row in study.rows.iter().filter(|row| counts(row)) {
        for check in row.checks.iter().filter(|check| check.threads == threads) {
            let size = check.error_percent.abs();
            sizes.push(size);
            if size >= maximum {
                (maximum, of) = (size, name(row));
            }
        }
    }
    let (count, large) = (sizes.len(), sizes.iter().filter(|size| **size > LARGE).count());
    Errors { median: median(sizes), maximum, of, count, large }
}

fn name(row: &Row) -> String {
    let cell = &row.cell;
    let mut name = format!(
        "{} {} {} {}",
        cell.workload.name(),
        cell.content.name(),
        cell.op.name(),
        cell.scheme.name
    );
    let variant = cell.variant();
    if !variant.is_empty() {
        let _ = write!(name, ", {variant}");
    }
    name
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
    let summary = |threads| {
        let errors = errors(study, threads, |_| true);
        json!({
            "threads": threads,
            "points": errors.count,
            "median_absolute_error_percent": errors.median,
            "maximum_absolute_error_percent": errors.maximum,
            "maximum_at": errors.of,
            "above_25_percent": errors.large,
        })
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
        "errors": [summary(1), summary(2)],
        "validation": validation,
        "predictions": predictions,
    })
}
