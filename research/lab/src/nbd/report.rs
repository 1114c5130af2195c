//! The results of `nbd`.

use serde::Serialize;

use super::fio::{Figures, QUEUE_DEPTH};
use super::server::Server;
use crate::args::NbdArgs;
use crate::statistics::median;

/// The results of a server so far.
pub struct Outcome {
    name: String,
    command: String,
    version: String,
    /// Figures of the writes in each round.
    pub writes: Vec<Figures>,
    /// Figures of the reads in each round.
    pub reads: Vec<Figures>,
    /// Resident memory of the server at the end.
    pub resident_bytes: u64,
}

impl Outcome {
    /// No results yet.
    pub fn new(server: &Server) -> Outcome {
        Outcome {
            name: server.name.clone(),
            command: server.command.clone(),
            version: server.version.clone(),
            writes: Vec::new(),
            reads: Vec::new(),
            resident_bytes: 0,
        }
    }
}

/// All results. Our server comes first. Figures are medians of the rounds.
#[derive(Serialize)]
pub struct Report {
    tool: String,
    size_bytes: u64,
    queue_depth: u32,
    milliseconds: u32,
    rounds: u32,
    servers: Vec<Line>,
    /// Ratio of our requests a second to those of each other server.
    ratios: Vec<Ratio>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    version: String,
    command: String,
    write: Side,
    read: Side,
    resident_bytes: u64,
}

#[derive(Serialize)]
struct Side {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    /// Number of requests in all rounds.
    requests: u64,
    /// Requests a second in each round.
    rounds: Vec<f64>,
}

#[derive(Serialize)]
struct Ratio {
    over: String,
    write: f64,
    read: f64,
}

impl Side {
    fn new(figures: &[Figures]) -> Side {
        let median_of = |of: fn(&Figures) -> f64| median(figures.iter().map(of));
        Side {
            per_second: median_of(|figures| figures.per_second),
            p50_us: median_of(|figures| figures.p50_us),
            p99_us: median_of(|figures| figures.p99_us),
            requests: figures.iter().map(|figures| figures.requests).sum(),
            rounds: figures.iter().map(|figures| figures.per_second).collect(),
        }
    }
}

impl Report {
    /// Makes the report from the servers' results. Our server is the first.
    pub fn new(tool: String, args: &NbdArgs, outcomes: &[Outcome]) -> Report {
        let line = |outcome: &Outcome| Line {
            name: outcome.name.clone(),
            version: outcome.version.clone(),
            command: outcome.command.clone(),
            write: Side::new(&outcome.writes),
            read: Side::new(&outcome.reads),
            resident_bytes: outcome.resident_bytes,
        };
        let servers: Vec<Line> = outcomes.iter().map(line).collect();
        let ratio = |ours: &Line, other: &Line| Ratio {
            over: other.name.clone(),
            write: ours.write.per_second / other.write.per_second,
            read: ours.read.per_second / other.read.per_second,
        };
        let ratios = servers
            .split_first()
            .map(|(ours, others)| others.iter().map(|other| ratio(ours, other)).collect())
            .unwrap_or_default();
        Report {
            tool,
            size_bytes: args.size,
            queue_depth: QUEUE_DEPTH,
            milliseconds: args.milliseconds,
            rounds: args.repeat,
            servers,
            ratios,
        }
    }
}
