//! `rampack-lab locks-sim` simulates contention between threads on more CPUs than there are.
//!
//! It simulates all events between CPUs from measurements of the same run: the cost of moving a
//! line, the length of sections, the time of one thread. It also measures the engine on two threads
//! and compares the simulation with that, before the simulation is used for more threads.
//!
//! * [`lines`], [`lock`], [`locking`], [`machine`]: the simulated machine.
//! * [`schemes`], [`engine`], [`reader_epochs`]: the simulated engine.
//! * [`primitives`], [`sections`], [`content`], [`points`]: the measurements.
//! * [`study`]: measurements and simulation together. [`report`]: the results.

mod content;
mod engine;
pub mod lines;
pub mod lock;
pub mod locking;
pub mod machine;
mod points;
pub mod primitives;
mod reader_epochs;
mod report;
pub mod schemes;
mod sections;
mod study;

use anyhow::Result;

use crate::args::LocksSimArgs;
use study::Study;

/// Runs the command.
///
/// # Errors
/// The machine has only one CPU, the corpus cannot be read, or the engine fails.
pub fn run(args: &LocksSimArgs) -> Result<()> {
    let bar = crate::report::bar(1);
    let study = Study::make(args, &bar);
    bar.finish_and_clear();
    let study = study?;
    crate::report::show(&report::json(&study, args), args.json)
}

#[cfg(test)]
mod tests;
