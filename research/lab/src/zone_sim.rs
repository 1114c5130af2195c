//! `rampack-lab zone-sim`: what threads do to each other at a zone, on more CPUs than there are.
//!
//! How long the lock is held, for how many pages, and how often the heads of lists are taken is
//! measured on as many threads as there are CPUs (two at most); the rest is simulated, event by
//! event. Before the simulation says anything it is compared with curves that others have published
//! and with a row of the seed, and with one and two threads here. What is said is framed as lock
//! demand: the nanoseconds for which a page keeps everybody else out. No number that it was given
//! is fitted to what comes out; [`published::constants`] has them with their sources.
//!
//! * [`load`]: what a thread wants of a zone; [`engine`]: the simulated zone.
//! * [`published`]: curves and rows of others; [`held`]: what is measured here.
//! * [`study`]: all together; [`report`], [`drawing`]: what is shown.

mod drawing;
pub mod engine;
mod held;
pub mod load;
mod published;
mod report;
mod study;

use anyhow::Result;

use crate::args::ZoneSimArgs;
use crate::zone;

/// Runs the command.
///
/// # Errors
/// Options that make no sense, no memory, or the picture cannot be written.
pub fn run(args: &ZoneSimArgs) -> Result<()> {
    let given = held::given(&args.held)?;
    let cpus = host::allowed_cpus();
    let transfer_ns = zone::line_transfer(&cpus)?;
    let wanted = held::Wanted::new(args, given, cpus)?;
    let bar = zone::bar(1);
    let study = study::Study::make(args, transfer_ns, &wanted, &bar);
    bar.finish_and_clear();
    let study = study?;
    if let Some(path) = &args.plot {
        drawing::write(&study, path)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report::json(&study, args))?);
    } else {
        print!("{}", report::text(&study, args));
    }
    Ok(())
}
