//! The results of `upgrade`: as a table and as JSON.

use std::time::Duration;

use serde::Serialize;

use super::load::Seen;
use crate::args::UpgradeArgs;
use crate::statistics::median;
use crate::table;

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

impl Line {
    fn new(size: &Size) -> Line {
        let of = |figure: &dyn Fn(&Round) -> f64| -> Vec<f64> {
            size.rounds.iter().map(figure).collect()
        };
        let pauses = of(&|round| round.during.longest * 1e3);
        let pause = median(pauses.iter().copied());
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
        let mut rows = table::table([
            "stored",
            "compressed",
            "pause\nms",
            "usual\nms",
            "pause\nms/GB",
            "stored\nGB/s",
            "compressed\nGB/s",
        ]);
        for line in &self.sizes {
            rows.add_row([
                units::human(line.stored_bytes).to_string(),
                units::human(line.compressed_bytes).to_string(),
                format!("{:.1}", line.pause_ms),
                format!("{:.1}", line.usual_ms),
                format!("{:.1}", line.pause_ms_per_gb),
                format!("{:.1}", line.stored_gb_per_second),
                format!("{:.1}", line.compressed_gb_per_second),
            ]);
        }
        table::text(rows, &[0])
    }
}
