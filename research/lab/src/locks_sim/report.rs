//! Parts of the results of a study.

use serde_json::{Value, json};

use super::schemes::Cell;
use crate::statistics::median;

/// A larger error, in percent, is pointed out.
pub const LARGE: f64 = 25.0;

/// What a situation is.
pub fn about(cell: &Cell) -> Value {
    json!({
        "workload": cell.workload.name(),
        "content": cell.content.name(),
        "op": cell.op.name(),
        "scheme": cell.scheme.name,
        "shared_counters": cell.shared_counters,
        "streams": cell.streams.name(),
    })
}

/// The absolute errors of the simulation at this many threads, in percent.
pub fn errors(validation: &[Value], threads: usize) -> Value {
    let of = validation.iter().filter(|check| check["threads"] == threads);
    let sizes: Vec<(f64, &Value)> =
        of.filter_map(|check| Some((check["error_percent"].as_f64()?.abs(), check))).collect();
    let largest = sizes.iter().max_by(|one, other| one.0.total_cmp(&other.0));
    let names = ["workload", "content", "op", "scheme", "streams"];
    let name = |check: &Value| names.map(|name| check[name].as_str().unwrap_or_default()).join(" ");
    json!({
        "threads": threads,
        "points": sizes.len(),
        "median_absolute_error_percent": median(sizes.iter().map(|size| size.0)),
        "maximum_absolute_error_percent": largest.map_or(0.0, |largest| largest.0),
        "maximum_at": largest.map(|(_, check)| name(check)),
        "above_25_percent": sizes.iter().filter(|size| size.0 > LARGE).count(),
    })
}
