//! `rampack-lab index` compares the indexes of zswap: one tree, split ones, and a table.
//!
//! It measures the index alone, or the whole engine with it, on as many threads as there are CPUs.
//! More threads are simulated on the machine of `locks_sim`, from the times of one thread. The
//! simulation of two threads is compared with the measurement of two threads.
//!
//! * [`workers`]: the threads' calls, and their times.
//! * [`subject`]: the index or engine they call.
//! * [`variant`]: the indexes.
//! * [`simulated`]: the indexes on the simulated machine.
//! * [`report`]: the results.

mod report;
mod simulated;
mod subject;
mod variant;
mod workers;

use anyhow::{Result, bail};

use crate::args::IndexArgs;
use crate::interrupt;
use crate::statistics::median;
use report::{Measured, Report};
use variant::Variant;
use workers::{Mix, Workers};

/// Runs the command.
///
/// # Errors
/// Two options contradict each other, memory is out, or an index returns a wrong entry.
pub fn run(args: &IndexArgs) -> Result<()> {
    let variants = variant::named(&args.variants)?;
    let cpus = host::allowed_cpus();
    let mut threads: Vec<usize> = args.threads.iter().map(|n| *n as usize).collect();
    if threads.is_empty() {
        threads = (1..=cpus.len()).collect();
    }
    if let Some(many) = threads.iter().find(|n| **n > cpus.len()) {
        bail!("--threads {many}: there are {} CPUs, and more threads are simulated", cpus.len());
    }
    let needed = if args.simulate.is_empty() { 0 } else { 2 };
    if let Some(missing) = (1..=needed).find(|n| !threads.contains(n)) {
        bail!("--simulate needs what {missing} thread(s) take, but --threads leaves it out");
    }
    let mut report = Report::new(args, &variants);
    report.measured = measure(args, &variants, &threads, &cpus)?;
    if !args.simulate.is_empty() {
        simulated::add(&mut report, args, &variants)?;
    }
    crate::report::show(&report, args.json)
}

/// Measures all situations in turn in each round. Each round begins with the next situation.
fn measure(
    args: &IndexArgs,
    variants: &[Variant],
    threads: &[usize],
    cpus: &[usize],
) -> Result<Vec<Measured>> {
    let turns = args.repeat as usize * threads.len() * Mix::ALL.len() * variants.len();
    let bar = crate::report::bar(turns as u64);
    let mut all = Vec::new();
    for &threads in threads {
        for mix in Mix::ALL {
            let mut rounds = vec![Vec::new(); variants.len()];
            for round in 0..args.repeat as usize {
                for turn in 0..variants.len() {
                    interrupt::check()?;
                    let which = (round + turn) % variants.len();
                    let variant = variants[which];
                    bar.set_message(format!("{}, {threads} thread(s)", variant.name));
                    let (pages, seed, whole) = (args.pages, args.seed, args.whole);
                    let workers = Workers { variant, mix, threads, pages, seed, whole };
                    let time = f64::from(args.milliseconds) / f64::from(args.repeat) / 1e3;
                    rounds[which].push(workers.run(cpus, time)?);
                    bar.inc(1);
                }
            }
            all.extend(rounds.into_iter().zip(variants).map(|(times, variant)| Measured {
                variant: variant.name,
                mix,
                threads,
                ns: median(times.iter().copied()),
                samples: times,
            }));
        }
    }
    bar.finish_and_clear();
    Ok(all)
}
