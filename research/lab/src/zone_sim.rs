//! `rampack-lab zone-sim` simulates contention at a zone, on more CPUs than there are.
//!
//! It measures three things on as many threads as there are CPUs (two at most): how long the lock
//! is held, for how many pages, and how often the heads of lists are taken. The rest is simulated,
//! event by event. First the simulation is compared with published curves, with a row of the seed,
//! and with one and two threads here. The results are stated as lock demand: the nanoseconds for
//! which a page keeps all other threads out. No input number is fitted to the results;
//! [`published::constants`] lists them with their sources.
//!
//! * [`load`]: a thread's demand on a zone; [`engine`]: the simulated zone.
//! * [`published`]: published curves and rows; [`held`]: the measurements of this machine.
//! * [`study`]: all together.

pub mod engine;
mod held;
pub mod load;
mod published;
mod study;

use anyhow::Result;
use serde_json::Value;

use crate::args::ZoneSimArgs;
use crate::zone;

/// Runs the command.
pub fn run(args: &ZoneSimArgs) -> Result<Value> {
    let cpus = host::allowed_cpus();
    let transfer_ns = zone::line_transfer(&cpus)?;
    study::study(args, transfer_ns, &held::plan(args, cpus)?)
}
