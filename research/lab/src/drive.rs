//! What `locks` and `streams` share: workloads, contents, subjects that take turns, and results.
//!
//! Each repetition goes through the numbers of threads. For each, every subject starts with an
//! empty device of its own, runs all modes of the workload, is verified, and is taken down before
//! the next subject starts. Each repetition begins with the next subject.

mod content;
mod ledger;
pub mod modes;
mod plan;
mod report;
pub mod subject;
mod target;
pub mod workers;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use crate::args::DriveArgs;
use crate::interrupt;
use content::{Content, Source};
use ledger::Ledger;
use modes::{Amount, Kind, Workload};
use plan::Plan;
use subject::Setting;
use workers::Rate;

pub use content::half_compressible;
pub use report::Report;
pub use subject::{Count, Ours, Subject, Through};

/// A run.
pub struct Experiment {
    plan: Plan,
    source: Source,
}

impl Experiment {
    /// Makes the run that the command line asks for. The others are compared with the first of
    /// `ours`.
    ///
    /// # Errors
    /// Contents are missing, a subject cannot start, or two options contradict each other.
    pub fn new(
        args: &DriveArgs,
        threads: &[u32],
        ours: Vec<Subject>,
        size: u64,
    ) -> Result<Experiment> {
        let amount = Amount {
            bytes: usize::try_from(args.size.unwrap_or(size))?,
            loops: args.loops,
            operations: args.operations,
        };
        let workload = Workload { kind: args.workload, amount };
        if args.size.is_some() && workload.kind != Kind::Modes {
            bail!("--size is for --workload modes; {} has a size of its own", workload.name());
        }
        let content = Content::parse(&args.content, args.shuffle)?;
        let threads: Vec<usize> = threads.iter().map(|&threads| threads as usize).collect();
        if let Some(twice) = (1..threads.len()).find(|&n| threads[..n].contains(&threads[n])) {
            bail!("--threads {} stands there twice", threads[twice]);
        }
        let mut subjects = ours;
        let kernel = args.kernel.clone().map(|path| {
            subjects.push(Subject::kernel());
            let algorithm = args.kernel_algorithm.as_ref().unwrap_or(&args.algorithm);
            (path, algorithm.clone())
        });
        let setting = Setting { through: args.through, algorithm: args.algorithm.clone(), kernel };
        let most = threads.iter().copied().max().unwrap_or(1);
        setting.check(&subjects, most)?;
        let source = content.prepare(workload.block(), workload.places(most) * 2)?;
        let (repeat, cpus) = (args.repeat as usize, host::allowed_cpus());
        let plan = Plan { workload, content, threads, repeat, subjects, setting, cpus };
        Ok(Experiment { plan, source })
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// A subject fails, a page is not the written one, or the run is interrupted.
    pub fn run(&self, command: &'static str) -> Result<Report> {
        let Plan { workload, threads, repeat, subjects, .. } = &self.plan;
        let modes = workload.modes();
        let mut report = Report::new(command, &self.plan)?;
        let turns = repeat * threads.len() * subjects.len();
        let bar = crate::report::bar((turns * modes.len()) as u64);
        let result = (0..*repeat).try_for_each(|repetition| {
            threads.iter().try_for_each(|&threads| {
                let mut order: Vec<usize> = (0..subjects.len()).collect();
                order.rotate_left(repetition % subjects.len());
                order.into_iter().try_for_each(|subject| {
                    let rates = self.turn(subject, threads, &bar)?;
                    report.add(threads, subject, &rates);
                    Ok(())
                })
            })
        });
        bar.finish_and_clear();
        result.map(|()| report.finished())
    }

    /// One subject's turn. Returns the rate of each mode.
    fn turn(&self, subject: usize, threads: usize, bar: &ProgressBar) -> Result<Vec<Rate>> {
        let Plan { workload, subjects, setting, cpus, .. } = &self.plan;
        let subject = &subjects[subject];
        let turn = || -> Result<Vec<Rate>> {
            let target = setting.open(subject, workload.device_bytes(threads), threads)?;
            let mut ledger = Ledger::new(workload.places(threads), workload.shared());
            let mut rates = Vec::new();
            for (number, mode) in workload.modes().into_iter().enumerate() {
                bar.set_message(format!("{}, {threads} thread(s): {mode}", subject.name));
                interrupt::check()?;
                let parts = workload.parts(number, threads, &self.source);
                rates.push(workers::run(&parts, cpus, &*target, &self.source)?);
                ledger.note(&parts);
                bar.inc(1);
            }
            ledger.verify(&*target, &self.source)?;
            Ok(rates)
        };
        turn().with_context(|| format!("{}, {threads} thread(s)", subject.name))
    }
}
