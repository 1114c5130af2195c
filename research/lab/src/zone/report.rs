//! The results of `zone`.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::plan::Plan;
use super::run::Run;
use crate::args::ZoneArgs;

/// All results as one object. If there is only one run, its fields are also next to `runs`.
///
/// # Errors
/// None: all results can be written as JSON.
pub fn json(
    args: &ZoneArgs,
    plan: &Plan,
    ping_pong_ns: Option<f64>,
    runs: &[Run],
) -> Result<Value> {
    let mut all = Map::new();
    if let [run] = runs
        && let Value::Object(fields) = serde_json::to_value(run)?
    {
        all.extend(fields);
    }
    let head = json!({
        "command": "zone",
        "dispatch": "Arc<dyn Frames>, as in the engine",
        "cpus": plan.cpus.len(),
        "line_transfer_ns": ping_pong_ns,
        "repeat": plan.repeat,
        "cycles": plan.cycles,
        "give_back": args.give_back,
        "seed": plan.seed,
        "runs": runs,
    });
    if let Value::Object(head) = head {
        all.extend(head);
    }
    Ok(Value::Object(all))
}
