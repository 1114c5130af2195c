//! `rampack-lab index`: the indexes of zswap, one tree and split ones.
//!
//! Measured on as many threads as there are CPUs, the index alone, or the whole engine with it.
//! What more threads would do to each other is simulated on the machine of `locks_sim`, from the
//! times that one thread was measured to take, and compared with what two threads were measured to
//! take.
//!
//! * [`workers`]: what threads do, and how long it takes.
//! * [`subject`]: what they do it with.
//! * [`variant`]: the indexes.
//! * [`simulated`]: the same on the simulated machine.
//! * [`report`]: what is shown of it.

mod report;
mod simulated;
mod subject;
mod variant;
mod workers;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::IndexArgs;
use crate::interrupt;
use crate::statistics::median;
use report::{Measured, Report};
use variant::Variant;
use workers::{Mix, Workers};

/// Runs the command.
///
/// # Errors
/// Options that make no sense, no memory, or an index that gives what was not put in.
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
    report.show(args)
}

/// All situations in turn, as often as there are rounds; who begins moves on by one each time.
fn measure(
    args: &IndexArgs,
    variants: &[Variant],
    threads: &[usize],
    cpus: &[usize],
) -> Result<Vec<Measured>> {
    let turns = args.repeat as usize * threads.len() * Mix::ALL.len() * variants.len();
    let bar = ProgressBar::new(turns as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}") {
        bar.set_style(style);
    }
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
