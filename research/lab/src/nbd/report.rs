//! The results of `nbd`. Our server comes first. Figures are medians of the rounds.

use serde_json::{Value, json};

use super::fio::{Figures, QUEUE_DEPTH};
use super::server::Server;
use crate::args::NbdArgs;
use crate::statistics::median;

/// A server with its figures in each round: of writes, and of reads.
pub struct Outcome {
    /// The server.
    pub server: Server,
    /// Its figures in each round.
    pub writes: Vec<Figures>,
    /// The same of reads.
    pub reads: Vec<Figures>,
}

fn rate(figures: &[Figures]) -> f64 {
    median(figures.iter().map(|figures| figures.per_second))
}

fn side(figures: &[Figures]) -> Value {
    json!({
        "per_second": rate(figures),
        "p50_us": median(figures.iter().map(|figures| figures.p50_us)),
        "p99_us": median(figures.iter().map(|figures| figures.p99_us)),
        "requests": figures.iter().map(|figures| figures.requests).sum::<u64>(),
        "rounds": figures.iter().map(|figures| figures.per_second).collect::<Vec<f64>>(),
    })
}

/// All results, with the ratios of our requests a second to those of each other server.
pub fn json(tool: &str, args: &NbdArgs, outcomes: &[Outcome], resident: &[u64]) -> Value {
    let line = |(Outcome { server, writes, reads }, resident): (&Outcome, &u64)| {
        json!({
            "name": server.name,
            "version": server.version,
            "command": server.command,
            "write": side(writes),
            "read": side(reads),
            "resident_bytes": resident,
        })
    };
    let ratio = |other: &Outcome| {
        json!({
            "over": other.server.name,
            "write": rate(&outcomes[0].writes) / rate(&other.writes),
            "read": rate(&outcomes[0].reads) / rate(&other.reads),
        })
    };
    json!({
        "tool": tool,
        "size_bytes": args.size,
        "queue_depth": QUEUE_DEPTH,
        "milliseconds": args.milliseconds,
        "rounds": args.repeat,
        "servers": outcomes.iter().zip(resident).map(line).collect::<Vec<Value>>(),
        "ratios": outcomes[1..].iter().map(ratio).collect::<Vec<Value>>(),
    })
}
