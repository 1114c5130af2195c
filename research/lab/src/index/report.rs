//! The results of `index`: measured, simulated, as text and as a picture.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::variant::Variant;
use super::workers::Mix;
use crate::args::IndexArgs;
use crate::level::named;
use crate::plot::Bars;
use crate::statistics::spread;
use crate::table;

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

    /// Prints the results, and draws them if the command line asks for a picture.
    ///
    /// # Errors
    /// The picture cannot be written.
    pub fn show(&self, args: &IndexArgs) -> Result<()> {
        if let Some(path) = &args.plot {
            self.picture().write(path)?;
        }
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(self)?),
            false => print!("{}", self.text()),
        }
        Ok(())
    }

    /// The measured calls of all threads together.
    fn picture(&self) -> Bars {
        let mut threads: Vec<usize> = self.measured.iter().map(|m| m.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let cells: Vec<(Mix, usize)> =
            Mix::ALL.iter().flat_map(|mix| threads.iter().map(|n| (*mix, *n))).collect();
        let rate = |name: &str, &(mix, threads): &(Mix, usize)| {
            self.measured(name, mix, threads).map_or(0.0, |ns| threads as f64 * 1e3 / ns)
        };
        let of = |name: &&'static str| {
            ((*name).to_owned(), cells.iter().map(|cell| rate(name, cell)).collect())
        };
        Bars {
            title: format!("Indexes of zswap{}", if self.whole { "" } else { " alone" }),
            unit: "million calls a second".to_owned(),
            groups: cells.iter().map(|(mix, n)| format!("{} {n}", mix.name())).collect(),
            series: self.variants.iter().map(of).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let headed = |first: &[&str]| table::table(first.iter().chain(&self.variants));
        // Writing to a string does not fail.
        let what = if self.whole { "the engine" } else { "the index alone" };
        let _ = writeln!(
            text,
            "Nanoseconds of a thread for a call of {what}, measured (medians and spread)\n"
        );
        let mut table = headed(&["mix", "threads"]);
        for m in self.measured.iter().filter(|m| m.variant == self.variants[0]) {
            let mut row = vec![m.mix.name().to_owned(), m.threads.to_string()];
            row.extend(self.variants.iter().map(|name| {
                let ns = self.measured(name, m.mix, m.threads).unwrap_or_default();
                format!("{ns:.1}")
            }));
            table.add_row(row);
            let is = |o: &&Measured| o.mix == m.mix && o.threads == m.threads;
            let spreads = self.measured.iter().filter(is).map(|o| {
                let [least, most] = spread(&o.samples);
                format!("{least:.0}-{most:.0}")
            });
            table.add_row(["  least-most", ""].map(str::to_owned).into_iter().chain(spreads));
        }
        text.push_str(&table::text(table, &[0]));
        if self.predicted.is_empty() {
            return text;
        }
        let _ = writeln!(text, "\nThe simulation beside it, percent over or under\n");
        let mut table = headed(&["mix", "threads"]);
        for c in self.validation.iter().filter(|c| c.variant == self.variants[0]) {
            let mut row = vec![c.mix.name().to_owned(), c.threads.to_string()];
            for name in &self.variants {
                let is =
                    |o: &&Check| o.variant == *name && o.mix == c.mix && o.threads == c.threads;
                let error = self.validation.iter().find(is).map_or(0.0, |o| o.error_percent);
                row.push(format!("{error:+.0}"));
            }
            table.add_row(row);
        }
        text.push_str(&table::text(table, &[0]));
        let _ = writeln!(text, "\nSIMULATED: calls a second of all threads, in millions\n");
        let mut table = headed(&["mix", "between", "threads"]);
        for p in self.predicted.iter().filter(|p| p.variant == self.variants[0]) {
            let mut row =
                vec![p.mix.name().to_owned(), p.between.to_string(), p.threads.to_string()];
            for name in &self.variants {
                let is = |o: &&Predicted| {
                    let same = (o.mix, o.threads, o.between) == (p.mix, p.threads, p.between);
                    o.variant == *name && same
                };
                let ns = self.predicted.iter().find(is).map_or(f64::INFINITY, |o| o.ns);
                row.push(format!("{:.2}", p.threads as f64 * 1e3 / ns));
            }
            table.add_row(row);
        }
        text + &table::text(table, &[0])
    }
}
