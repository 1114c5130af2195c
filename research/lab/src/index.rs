//! `rampack-lab index` compares the indexes of zswap: one tree, split ones, and a table.
//!
//! It measures the index alone, or the whole engine with it, on as many threads as there are CPUs.
//!
//! * [`workers`]: the threads' calls, and their times.
//! * [`subject`]: the index or engine they call.

mod subject;
mod workers;

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::{IndexArgs, chosen, threads};
use crate::report::{begin, step};
use crate::statistics::median;
use workers::{Measured, Mix, Workers};

/// Runs the command.
pub fn run(args: &IndexArgs) -> Result<Value> {
    // From the oldest to the product's.
    let all: Vec<&str> = designs::INDEXES.iter().copied().rev().collect();
    let indexes = chosen("--variants", &args.variants, &all)?;
    let cpus = host::allowed_cpus();
    let threads = threads(&args.threads, cpus.len(), cpus.len())?;
    let measured = measure(args, &indexes, &threads, &cpus)?;
    Ok(json!({
        "command": "index",
        "whole": args.whole,
        // The codec of the whole engine. Null for the index alone.
        "algorithm": args.whole.then_some(zcomp::LZ4),
        "pages": args.pages,
        "repeat": args.repeat,
        "variants": indexes,
        "measured": measured,
    }))
}

/// Measures all situations in turn in each round. Each round begins with the next situation.
fn measure(
    args: &IndexArgs,
    indexes: &[&'static str],
    threads: &[usize],
    cpus: &[usize],
) -> Result<Vec<Measured>> {
    let turns = args.repeat as usize * threads.len() * Mix::ALL.len() * indexes.len();
    begin(turns as u64);
    let mut all = Vec::new();
    for &threads in threads {
        for mix in Mix::ALL {
            let mut rounds = vec![Vec::new(); indexes.len()];
            for round in 0..args.repeat as usize {
                for turn in 0..indexes.len() {
                    let which = (round + turn) % indexes.len();
                    let index = indexes[which];
                    step(format!("{index}, {threads} thread(s)"))?;
                    let (pages, whole) = (args.pages, args.whole);
                    let workers = Workers { index, mix, threads, pages, whole };
                    let time = f64::from(args.milliseconds) / f64::from(args.repeat) / 1e3;
                    rounds[which].push(workers.run(cpus, time)?);
                }
            }
            all.extend(rounds.into_iter().zip(indexes).map(|(samples, &variant)| {
                let ns = median(samples.iter().copied());
                Measured { variant, mix, threads, ns, samples }
            }));
        }
    }
    Ok(all)
}
