//! `rampack-lab locks-sim` simulates contention between threads on more CPUs than there are.
//!
//! It simulates all events between CPUs from measurements of the same run: the cost of moving a
//! line, the length of sections, the time of one thread. It also measures the engine on two threads
//! and compares the simulation with that, before the simulation is used for more threads.
//!
//! * [`schemes`], [`engine`], [`reader_epochs`]: the simulated engine.
//! * [`primitives`], [`sections`], [`content`], [`points`]: the measurements.
//! * [`study`]: measurements and simulation together. [`report`]: the results.

mod content;
mod engine;
mod points;
pub mod primitives;
mod reader_epochs;
mod report;
pub mod schemes;
mod sections;
mod study;

use anyhow::Result;
use serde_json::Value;

use crate::args::LocksSimArgs;

/// Runs the command.
pub fn run(args: &LocksSimArgs) -> Result<Value> {
    study::study(args)
}

#[cfg(test)]
mod tests;
