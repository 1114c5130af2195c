//! The results of the programs.

use serde::Serialize;

use crate::args::HungryArgs;
use crate::pressure::Measured;
use crate::table::{self, maybe_count};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The program.
    pub program: &'static str,
    /// The kind of swap.
    pub swap: String,
    /// Number of attempts. A program that is refused memory at the limit of its group runs again;
    /// the other fields are from the last attempt.
    pub attempts: u32,
    /// Whether it did all its work and everything was right.
    pub passed: bool,
    /// The comparison that was made, or the failure.
    pub verdict: String,
    /// The figures.
    pub measured: Measured,
}

/// All results, in the order of the runs.
#[derive(Serialize)]
pub struct Report {
    kernel: String,
    limit_bytes: u64,
    size_bytes: u64,
    swap_bytes: u64,
    max_pool_bytes: Option<u64>,
    seed: u64,
    /// Every run.
    pub runs: Vec<Run>,
}

impl Report {
    /// A report before the first run.
    pub fn new(args: &HungryArgs, size_bytes: u64) -> Report {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Report {
            kernel: release.trim().to_owned(),
            limit_bytes: args.limit,
            size_bytes,
            swap_bytes: args.swap.swap_size,
            max_pool_bytes: args.swap.max_pool,
            seed: args.seed,
            runs: Vec::new(),
        }
    }

    /// The results as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Linux {}, {} of data in {} of memory, {} of swap\n\n",
            self.kernel,
            units::human(self.size_bytes),
            units::human(self.limit_bytes),
            units::human(self.swap_bytes)
        );
        let mut table = table::table([
            "program", "swap", "", "time, s", "pswpin", "pswpout", "stored", "loaded", "wr. back",
            "verified",
        ]);
        for run in &self.runs {
            let Run { program, swap, passed, verdict, measured, .. } = run;
            table.add_row([
                (*program).to_owned(),
                swap.clone(),
                (if *passed { "pass" } else { "FAILED" }).to_owned(),
                format!("{:.1}", measured.seconds),
                measured.vmstat.pswpin.to_string(),
                measured.vmstat.pswpout.to_string(),
                maybe_count(measured.swap.stored),
                maybe_count(measured.swap.loaded),
                maybe_count(measured.swap.written_back),
                verdict.clone(),
            ]);
        }
        text.push_str(&table::text(table, &[0, 1, 2, 9]));
        text
    }
}
