//! The results of `index`: measured and simulated.

use serde::Serialize;

use super::variant::Variant;
use super::workers::Mix;
use crate::args::IndexArgs;
use crate::level::named;

/// The median of the measurements of a situation.
#[derive(Serialize)]
pub struct Measured {
    /// The index.
    pub variant: &'static str,
    /// The mix of calls.
    pub mix: Mix,
    /// The number of threads.
    pub threads: usize,
    /// A thread's nanoseconds for a call: the median of the rounds.
    pub ns: f64,
    /// A thread's nanoseconds for a call in each round.
    pub samples: Vec<f64>,
}

/// The result of a simulation.
#[derive(Serialize)]
pub struct Predicted {
    /// The index.
    pub variant: &'static str,
    /// The mix of calls.
    pub mix: Mix,
    /// The number of threads.
    pub threads: usize,
    /// Nanoseconds of a thread's own work between calls.
    pub between: u32,
    /// A thread's nanoseconds for a call, `between` included.
    pub ns: f64,
    /// The lock or line with the highest use.
    pub busiest: String,
    /// The part of the time that `busiest` is in use.
    pub utilisation: f64,
    /// Always true.
    pub simulated: bool,
}

/// A simulated result and the measured one.
#[derive(Serialize)]
pub struct Check {
    variant: &'static str,
    mix: Mix,
    threads: usize,
    measured_ns: f64,
    simulated_ns: f64,
    error_percent: f64,
}

/// All results.
#[derive(Serialize)]
pub struct Report {
    command: &'static str,
    whole: bool,
    /// The codec of the whole engine. `None` for the index alone.
    algorithm: Option<String>,
    pages: u32,
    repeat: u32,
    seed: u64,
    variants: Vec<&'static str>,
    /// The measurements.
    pub measured: Vec<Measured>,
    validation: Vec<Check>,
    /// The simulations.
    pub predicted: Vec<Predicted>,
}

impl Report {
    /// An empty report.
    pub fn new(args: &IndexArgs, variants: &[Variant]) -> Report {
        Report {
            command: "index",
            whole: args.whole,
            algorithm: args.whole.then(|| named(zcomp::LZ4, None)),
            pages: args.pages,
            repeat: args.repeat,
            seed: args.seed,
            variants: variants.iter().map(|variant| variant.name).collect(),
            measured: Vec::new(),
            validation: Vec::new(),
            predicted: Vec::new(),
        }
    }

    /// The measured nanoseconds of a situation.
    pub fn measured(&self, variant: &str, mix: Mix, threads: usize) -> Option<f64> {
        let is = |m: &&Measured| m.variant == variant && m.mix == mix && m.threads == threads;
        self.measured.iter().find(is).map(|measured| measured.ns)
    }

    /// Adds checks: number of threads, measured and simulated nanoseconds.
    pub fn check(&mut self, variant: &'static str, mix: Mix, checks: &[(usize, f64, f64)]) {
        self.validation.extend(checks.iter().map(|&(threads, measured_ns, simulated_ns)| Check {
            variant,
            mix,
            threads,
            measured_ns,
            simulated_ns,
            error_percent: (simulated_ns / measured_ns - 1.0) * 100.0,
        }));
    }
}
