//! What `locks` and `streams` share: workloads, contents, subjects that take turns, and results.
//!
//! Each repetition goes through the numbers of threads. For each, every subject starts with an
//! empty device of its own, runs all modes of the workload, is verified, and is taken down before
//! the next subject starts. Each repetition begins with the next subject.

mod content;
mod ledger;
pub mod modes;
mod report;
mod subject;
pub mod workers;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::args::{DriveArgs, name_of};
use crate::threads::cpus;
use content::{Content, Source};
use ledger::Ledger;
use modes::{Amount, Kind, Workload};
use report::{Plan, Report};
use subject::Setting;
use workers::Rate;

pub use content::half_compressible;
pub use subject::{Count, Subject};

pub struct Experiment {
    plan: Plan,
    source: Source,
}

impl Experiment {
    /// Makes the run that the command line asks for. The others are compared with the first of
    /// `subjects`.
    pub fn new(
        args: &DriveArgs,
        usual_threads: [usize; 2],
        mut subjects: Vec<Subject>,
        size: u64,
    ) -> Result<Experiment> {
        let amount = Amount {
            bytes: usize::try_from(args.size.unwrap_or(size))?,
            loops: args.loops,
            operations: args.operations,
        };
        let workload = Workload { kind: args.workload, amount };
        if args.size.is_some() && workload.kind != Kind::Modes {
            bail!(
                "--size is for --workload modes; {} has a size of its own",
                name_of(&workload.kind)
            );
        }
        let content = Content::parse(&args.content, args.shuffle)?;
        let mut threads: Vec<usize> = args.threads.iter().map(|&n| n as usize).collect();
        if threads.is_empty() {
            threads = usual_threads.to_vec();
        }
        if let Some(twice) = (1..threads.len()).find(|&n| threads[..n].contains(&threads[n])) {
            bail!("--threads {} stands there twice", threads[twice]);
        }
        let kernel = args.kernel.clone();
        if kernel.is_some() {
            let name = "kernel".to_owned();
            subjects.push(Subject { name, variants: None, streams: Count::Usual });
        }
        if let Some(twice) = (1..subjects.len())
            .find(|&n| subjects[..n].iter().any(|other| other.name == subjects[n].name))
        {
            bail!("{} takes part already", subjects[twice].name);
        }
        let setting = Setting { algorithm: args.algorithm.clone(), kernel };
        let most = threads.iter().copied().max().unwrap_or(1);
        // What cannot start must not end the run after an hour.
        for subject in &subjects {
            setting.open(subject, units::PAGE_SIZE, most).context(subject.name.clone())?;
        }
        let source = content.prepare(workload.block(), workload.places(most) * 2)?;
        let (repeat, cpus) = (args.repeat as usize, cpus(most)?);
        let plan = Plan { workload, content, threads, repeat, subjects, setting, cpus };
        Ok(Experiment { plan, source })
    }

    /// Runs the experiment.
    pub fn run(&self, command: &'static str) -> Result<Value> {
        let Plan { workload, threads, repeat, subjects, .. } = &self.plan;
        let turns = repeat * threads.len() * subjects.len() * workload.modes().len();
        crate::report::begin(turns as u64);
        let mut report = Report::new(&self.plan);
        for repetition in 0..*repeat {
            for (block, &threads) in threads.iter().enumerate() {
                for turn in 0..subjects.len() {
                    let subject = (turn + repetition) % subjects.len();
                    let name = &subjects[subject].name;
                    let rates = self.turn(&subjects[subject], threads);
                    let rates = rates.with_context(|| format!("{name}, {threads} thread(s)"))?;
                    report.add(block, subject, &rates);
                }
            }
        }
        report.finished(command)
    }

    /// One subject's turn. Returns the rate of each mode.
    fn turn(&self, subject: &Subject, threads: usize) -> Result<Vec<Rate>> {
        let Plan { workload, setting, cpus, .. } = &self.plan;
        let target = setting.open(subject, workload.device_bytes(threads), threads)?;
        let mut ledger = Ledger::new(workload.places(threads), workload.shared());
        let mut rates = Vec::new();
        for (number, mode) in workload.modes().into_iter().enumerate() {
            crate::report::step(format!("{}, {threads} thread(s): {mode}", subject.name))?;
            let parts = workload.parts(number, threads, &self.source);
            rates.push(workers::run(&parts, &cpus[..threads], &*target, &self.source)?);
            ledger.note(&parts);
        }
        ledger.verify(&*target, &self.source)?;
        Ok(rates)
    }
}
