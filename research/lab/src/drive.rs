//! What `locks` and `streams` share: workloads, contents, subjects that take turns, and results.
//!
//! In each repetition, for each number of threads, every subject is brought up with an empty device
//! of its own, goes through all modes of the workload, is verified, and is taken down before the
//! next one's turn. The order of subjects moves on by one with each repetition.

mod content;
mod ledger;
mod modes;
mod report;
mod subject;
mod target;
mod up;
mod workers;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::DriveArgs;
use crate::interrupt;
use crate::programs;
use content::{Content, Source};
use ledger::Ledger;
use modes::{Amount, RECORD, Workload};
use subject::Setting;
use workers::Rate;

pub use modes::Kind;
pub use report::{Clock, Figure, Report};
pub use subject::{Count, Ours, Subject, Through};

/// Whether `bytes` can be the size of a thread's part.
///
/// # Errors
/// Says what can.
pub fn check_size(bytes: u64) -> Result<(), String> {
    const MOST: u64 = 1 << 40;
    let record = RECORD as u64;
    if bytes < record || bytes > MOST || !bytes.is_multiple_of(record) {
        return Err(format!("{bytes} bytes: it must be a multiple of 16K, 16K to 1T"));
    }
    Ok(())
}

/// All that a run is made of.
pub struct Experiment {
    workload: Workload,
    content: Content,
    source: Source,
    threads: Vec<usize>,
    repeat: usize,
    subjects: Vec<Subject>,
    setting: Setting,
    cpus: Vec<usize>,
}

impl Experiment {
    /// From the command line; the first of `ours` is what the others are compared with.
    ///
    /// # Errors
    /// Contents that are not there, subjects that cannot be brought up, options that make no sense
    /// together.
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
        if args.clock == Clock::Cpu && args.through == Through::Device {
            bail!("--clock cpu is for --through process: a device's work is done by others");
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
        let setting = Setting {
            through: args.through,
            algorithm: args.algorithm.clone(),
            kernel,
            rampack: rampack(args)?,
        };
        let most = threads.iter().copied().max().unwrap_or(1);
        setting.check(&subjects, most)?;
        let source = content.prepare(workload.block(), workload.places(most) * 2)?;
        let (repeat, cpus) = (args.repeat as usize, host::allowed_cpus());
        Ok(Experiment { workload, content, source, threads, repeat, subjects, setting, cpus })
    }

    /// Runs it.
    ///
    /// # Errors
    /// A subject's, a page that is not what was written, or being interrupted.
    pub fn run(&self, command: &'static str) -> Result<Report> {
        let modes = self.workload.modes();
        let mut report = Report::new(command, self)?;
        let turns = self.repeat * self.threads.len() * self.subjects.len();
        let bar = ProgressBar::new((turns * modes.len()) as u64);
        if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        let result = (0..self.repeat).try_for_each(|repetition| {
            self.threads.iter().try_for_each(|&threads| {
                let mut order: Vec<usize> = (0..self.subjects.len()).collect();
                order.rotate_left(repetition % self.subjects.len());
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

    /// One subject's turn: the rate of each mode.
    fn turn(&self, subject: usize, threads: usize, bar: &ProgressBar) -> Result<Vec<Rate>> {
        let subject = &self.subjects[subject];
        let workload = &self.workload;
        let turn = || -> Result<Vec<Rate>> {
            let target = self.setting.open(subject, workload.device_bytes(threads), threads)?;
            let mut ledger = Ledger::new(workload.places(threads), workload.shared());
            let mut rates = Vec::new();
            for (number, mode) in workload.modes().into_iter().enumerate() {
                bar.set_message(format!("{}, {threads} thread(s): {mode}", subject.name));
                interrupt::check()?;
                let parts = workload.parts(number, threads, &self.source);
                rates.push(workers::run(&parts, &self.cpus, &*target, &self.source)?);
                ledger.note(&parts);
                bar.inc(1);
            }
            ledger.verify(&*target, &self.source)?;
            Ok(rates)
        };
        turn().with_context(|| format!("{}, {threads} thread(s)", subject.name))
    }
}

/// The program rampack, if it is needed.
fn rampack(args: &DriveArgs) -> Result<Option<PathBuf>> {
    match (args.through, &args.rampack) {
        (Through::Process, None) => Ok(None),
        (Through::Process, Some(_)) => bail!("--rampack is for --through device"),
        (Through::Device, Some(path)) => Ok(Some(path.clone())),
        (Through::Device, None) => programs::beside_us().map(Some),
    }
}
