//! The results of `upgrade`: as a table and as JSON.

use std::time::Duration;

use serde::Serialize;

use super::load::Seen;
use crate::args::UpgradeArgs;

const GIGABYTE: f64 = 1e9;

/// An upgrade.
pub struct Round {
    /// What the client saw in the same time before.
    pub before: Seen,
    /// What it saw during the upgrade.
    pub during: Seen,
    /// How long `rampack upgrade` took.
    pub command: Duration,
}

/// All upgrades with so much stored.
pub struct Size {
    /// Bytes of pages.
    pub stored: u64,
    /// Bytes of their objects.
    pub compressed_bytes: u64,
    /// Bytes of memory for the objects.
    pub memory_bytes: u64,
    /// The upgrades.
    pub rounds: Vec<Round>,
}

/// All results. Figures are medians of the rounds.
#[derive(Serialize)]
pub struct Report {
    tool: String,
    rounds: u32,
    sizes: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    stored_bytes: u64,
    compressed_bytes: u64,
    memory_bytes: u64,
    /// The longest time between two answers.
    pause_ms: f64,
    /// The same before the upgrade.
    usual_ms: f64,
    /// The pause for each 10^9 bytes stored.
    pause_ms_per_gb: f64,
    /// Bytes stored for each second of the pause, over 10^9: the recovery is at least as fast.
    stored_gb_per_second: f64,
    /// The same of compressed bytes.
    compressed_gb_per_second: f64,
    command_ms: f64,
    /// Of each round.
    pauses_ms: Vec<f64>,
    /// Answers during the upgrades.
    requests: u64,
}

/// The median; of an even number of values, the mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

impl Line {
    fn new(size: &Size) -> Line {
        let of = |figure: &dyn Fn(&Round) -> f64| -> Vec<f64> {
            size.rounds.iter().map(figure).collect()
        };
        let pauses = of(&|round| round.during.longest * 1e3);
        let pause = median(pauses.clone());
        let stored = size.stored as f64 / GIGABYTE;
        Line {
            stored_bytes: size.stored,
            compressed_bytes: size.compressed_bytes,
            memory_bytes: size.memory_bytes,
            pause_ms: pause,
            usual_ms: median(of(&|round| round.before.longest * 1e3)),
            pause_ms_per_gb: pause / stored,
            stored_gb_per_second: stored / pause * 1e3,
            compressed_gb_per_second: size.compressed_bytes as f64 / GIGABYTE / pause * 1e3,
            command_ms: median(of(&|round| round.command.as_secs_f64() * 1e3)),
            pauses_ms: pauses,
            requests: size.rounds.iter().map(|round| round.during.requests).sum(),
        }
    }
}

impl Report {
    /// The results of `rampack`, a version.
    pub fn new(rampack: String, args: &UpgradeArgs, sizes: Vec<Size>) -> Report {
        Report { tool: rampack, rounds: args.repeat, sizes: sizes.iter().map(Line::new).collect() }
    }

    /// A table, with a line for each size.
    pub fn text(&self) -> String {
        let line = |line: &Line| {
            format!(
                "{} stored, {} compressed: a pause of {:.1} ms, usually {:.1}; {:.1} ms/GB, {:.1} \
                 GB/s stored, {:.1} compressed\n",
                units::human(line.stored_bytes),
                units::human(line.compressed_bytes),
                line.pause_ms,
                line.usual_ms,
                line.pause_ms_per_gb,
                line.stored_gb_per_second,
                line.compressed_gb_per_second
            )
        };
        self.sizes.iter().map(line).collect()
    }
}
