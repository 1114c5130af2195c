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

mod simulated;
mod subject;
mod variant;
mod workers;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::args::IndexArgs;
use crate::level::named;
use crate::report::{begin, step};
use crate::statistics::median;
use variant::Variant;
use workers::{Measured, Mix, Workers};

/// Runs the command.
pub fn run(args: &IndexArgs) -> Result<Value> {
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
    let measured = measure(args, &variants, &threads, &cpus)?;
    let (mut validation, mut predicted) = (Vec::new(), Vec::new());
    if !args.simulate.is_empty() {
        (validation, predicted) = simulated::all(args, &variants, &measured)?;
    }
    Ok(json!({
        "command": "index",
        "whole": args.whole,
        // The codec of the whole engine. Null for the index alone.
        "algorithm": args.whole.then(|| named(zcomp::LZ4, None)),
        "pages": args.pages,
        "repeat": args.repeat,
        "seed": args.seed,
        "variants": variants.iter().map(|variant| variant.name).collect::<Vec<_>>(),
        "measured": measured,
        "validation": validation,
        "predicted": predicted,
    }))
}

/// Measures all situations in turn in each round. Each round begins with the next situation.
fn measure(
    args: &IndexArgs,
    variants: &[Variant],
    threads: &[usize],
    cpus: &[usize],
) -> Result<Vec<Measured>> {
    let turns = args.repeat as usize * threads.len() * Mix::ALL.len() * variants.len();
    begin(turns as u64);
    let mut all = Vec::new();
    for &threads in threads {
        for mix in Mix::ALL {
            let mut rounds = vec![Vec::new(); variants.len()];
            for round in 0..args.repeat as usize {
                for turn in 0..variants.len() {
                    let which = (round + turn) % variants.len();
                    let variant = variants[which];
                    step(format!("{}, {threads} thread(s)", variant.name))?;
                    let (pages, seed, whole) = (args.pages, args.seed, args.whole);
                    let workers = Workers { variant, mix, threads, pages, seed, whole };
                    let time = f64::from(args.milliseconds) / f64::from(args.repeat) / 1e3;
                    rounds[which].push(workers.run(cpus, time)?);
                }
            }
            all.extend(rounds.into_iter().zip(variants).map(|(samples, variant)| {
                let ns = median(samples.iter().copied());
                Measured { variant: variant.name, mix, threads, ns, samples }
            }));
        }
    }
    Ok(all)
}
