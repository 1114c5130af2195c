//! The results of `nbd`: as a table, as JSON, and as a picture.

use std::fmt::Write;

use serde::Serialize;

use super::fio::{Figures, QUEUE_DEPTH};
use super::server::Server;
use crate::args::NbdArgs;
use crate::plot::Bars;
use crate::statistics::median;
use crate::table;

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

    /// The results as text.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}, 4 KiB random, {} requests under way, {} of data, {} ms, \
             medians of {} round(s)\n\n",
            self.tool,
            self.queue_depth,
            units::human(self.size_bytes),
            self.milliseconds,
            self.rounds
        );
        let mut table = table::table([
            "server", "writes/s", "p50 us", "p99 us", "reads/s", "p50 us", "p99 us", "RSS",
        ]);
        for line in &self.servers {
            table.add_row([
                line.name.to_string(),
                format!("{:.0}", line.write.per_second),
                format!("{:.0}", line.write.p50_us),
                format!("{:.0}", line.write.p99_us),
                format!("{:.0}", line.read.per_second),
                format!("{:.0}", line.read.p50_us),
                format!("{:.0}", line.read.p99_us),
                units::human(line.resident_bytes).to_string(),
            ]);
        }
        text.push_str(&table::text(table, &[0]));
        for ratio in &self.ratios {
            let _ = write!(
                text,
                "\nours over {}: writes {:.2}, reads {:.2}",
                ratio.over, ratio.write, ratio.read
            );
        }
        text.push('\n');
        text
    }

    /// Bars of requests a second.
    pub fn bars(&self) -> Bars {
        let values = |line: &Line| vec![line.write.per_second, line.read.per_second];
        Bars {
            title: format!("NBD, 4 KiB random, {} requests under way", self.queue_depth),
            unit: "requests per second".to_owned(),
            groups: vec!["writes".to_owned(), "reads".to_owned()],
            series: self.servers.iter().map(|line| (line.name.clone(), values(line))).collect(),
        }
    }
}
