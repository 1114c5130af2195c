//! What the programs have shown.

use std::fmt::Write;

use serde::Serialize;

use super::Run;
use crate::args::HungryArgs;

/// All of it, in the order of the runs.
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
    /// Before the first run.
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

    /// For people to read.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Linux {}, {} of data in {} of memory, {} of swap\n\n",
            self.kernel,
            units::human(self.size_bytes),
            units::human(self.limit_bytes),
            units::human(self.swap_bytes)
        );
        let _ = writeln!(
            text,
            "{:10} {:22} {:6} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}  verified",
            "program", "swap", "", "time, s", "pswpin", "pswpout", "stored", "loaded", "wr. back"
        );
        for run in &self.runs {
            let Run { program, swap, passed, verdict, measured, .. } = run;
            let some = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
            let result = if *passed { "pass" } else { "FAILED" };
            let _ = writeln!(
                text,
                "{program:10} {swap:22} {result:6} {:8.1} {:9} {:9} {:>9} {:>9} {:>9}  {verdict}",
                measured.seconds,
                measured.vmstat.pswpin,
                measured.vmstat.pswpout,
                some(measured.swap.stored),
                some(measured.swap.loaded),
                some(measured.swap.written_back),
            );
        }
        text
    }
}
