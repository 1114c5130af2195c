//! `rampack-lab hungry`: programs that check their memory, in a cgroup with less memory than they
//! want.
//!
//! A page that comes back wrong from swap makes a run fail. stress-ng checks the patterns that it
//! wrote. The sorted file is compared with a sort that had enough memory. Every value of the
//! database is compared with the value that its key gives. A run without any swapping fails too,
//! because it shows nothing.

mod redis;
mod report;
mod sort;
mod stress;
mod task;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;

use crate::args::HungryArgs;
use crate::pressure::{Measured, SwapGroup};
use crate::programs;
use crate::swap::{Kind, Mode, Shop};
pub use redis::{Connection, request};
use report::{Report, Run};
use task::{Task, Verdict};

/// The kinds of swap in `all`.
const KINDS: [Kind; 4] = [Kind::File, Kind::KernelZswap, Kind::KernelZram, Kind::Rampack];

/// The programs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// stress-ng's virtual memory stressor, which verifies
    StressNg,
    /// A sort of a file that is larger than the memory
    Sort,
    /// A database in memory, all of which is read back
    Redis,
}

const PROGRAMS: [Program; 3] = [Program::StressNg, Program::Sort, Program::Redis];

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::StressNg => "stress-ng",
            Program::Sort => "sort",
            Program::Redis => "redis",
        }
    }

    /// Parses the command line: names, or `all`.
    fn list(texts: &[String]) -> Result<Vec<Program>> {
        let mut programs = Vec::new();
        for text in texts {
            match text.as_str() {
                "all" => programs.extend(PROGRAMS),
                text => match Program::from_str(text, false) {
                    Ok(program) => programs.push(program),
                    Err(_) => {
                        let known: Vec<&str> = PROGRAMS.iter().map(|it| it.name()).collect();
                        bail!("{text:?} is no program; there are {}", known.join(", "));
                    }
                },
            }
        }
        for (number, program) in programs.iter().enumerate() {
            if programs[..number].contains(program) {
                bail!("{} is there already", program.name());
            }
        }
        Ok(programs)
    }

    /// Finds its executable file.
    fn find(self) -> Result<PathBuf> {
        let (name, package) = match self {
            Program::StressNg => ("stress-ng", "stress-ng"),
            Program::Sort => ("sort", "coreutils"),
            Program::Redis => ("redis-server", "redis-server"),
        };
        programs::find(name)
            .with_context(|| format!("{name} is not installed; the package {package} brings it"))
    }
}

/// Runs the command.
///
/// # Errors
/// A program is missing, a kind of swap is impossible here, something cannot be taken down, a run
/// did not pass, or the command was interrupted.
pub fn run(args: &HungryArgs) -> Result<()> {
    let modes = Mode::list(&args.swap.swap, &KINDS)?;
    let programs = Program::list(&args.program)?;
    let paths: Vec<PathBuf> = programs.iter().map(|it| it.find()).collect::<Result<_>>()?;
    let bytes = args.size.unwrap_or(2 * args.limit);
    if bytes <= args.limit {
        bail!("--size is not more than --limit, so nothing would be swapped");
    }
    let shop = Shop::new(&args.swap, &args.swap.dir, &modes)?;
    let bar = ProgressBar::new((programs.len() * modes.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    let directory = TempDir::with_prefix_in("rampack-lab-", &args.swap.dir)
        .with_context(|| format!("cannot write in {}", args.swap.dir.display()))?;
    let mut report = Report::new(args, bytes);
    for (&program, path) in programs.iter().zip(&paths) {
        let task = Task {
            program: path.clone(),
            directory: directory.path(),
            bytes,
            seed: args.seed,
            timeout: Duration::from_secs(args.swap.timeout.into()),
        };
        bar.set_message(format!("{}: preparing", program.name()));
        let prepared = match program {
            Program::Sort => Some(sort::prepare(&task)?),
            _ => None,
        };
        for mode in &modes {
            bar.set_message(format!("{} with {mode}", program.name()));
            let what = || format!("{} with {mode}", program.name());
            let limit = (mode.kind != Kind::None).then_some(args.limit);
            let mut attempts = 0;
            let (verdict, measured) = loop {
                attempts += 1;
                let mut swap_group =
                    SwapGroup::new(&shop, mode, limit, task.timeout).with_context(what)?;
                let done = match (program, &prepared) {
                    (Program::StressNg, _) => stress::run(&task, &mut swap_group),
                    (Program::Redis, _) => redis::run(&task, &mut swap_group),
                    (Program::Sort, Some(prepared)) => sort::run(&task, prepared, &mut swap_group),
                    (Program::Sort, None) => bail!("nothing to sort"),
                };
                let (verdict, measured) = done.with_context(what)?;
                swap_group.end().with_context(what)?;
                if attempts == ATTEMPTS || !was_refused_memory(&verdict, &measured) {
                    break (verdict, measured);
                }
            };
            report.runs.push(Run { attempts, ..judged(program, mode, verdict, measured) });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if args.swap.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    let failed = report.runs.iter().filter(|run| !run.passed).count();
    if failed > 0 {
        bail!("{failed} of {} runs did not pass", report.runs.len());
    }
    Ok(())
}

/// Most attempts for a program that is refused memory.
const ATTEMPTS: u32 = 4;

fn judged(program: Program, mode: &Mode, verdict: Verdict, measured: Measured) -> Run {
    let out = measured.vmstat.pswpout + measured.vmstat.zswpout.unwrap_or(0);
    let verdict = match verdict {
        Ok(_) if mode.kind != Kind::None && out == 0 => {
            Err("nothing was swapped, so nothing is shown; raise --size".to_owned())
        }
        verdict => verdict,
    };
    let passed = verdict.is_ok();
    let verdict = match verdict {
        Ok(text) | Err(text) => text,
    };
    let (program, swap) = (program.name(), mode.to_string());
    Run { program, swap, attempts: 1, passed, verdict, measured }
}

/// Whether a system call failed because the group was at its limit. The kernel would otherwise have
/// ended a program, which [`crate::cgroup`] prevents; but the kernel lets only page faults wait.
fn was_refused_memory(verdict: &Verdict, measured: &Measured) -> bool {
    let refused = |message: &String| message.contains("Cannot allocate memory");
    measured.relieved_bytes > 0 && verdict.as_ref().is_err_and(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_by_name() {
        let list = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            Program::list(&texts).map_err(|error| error.to_string())
        };
        assert_eq!(list(&["all"]), Ok(PROGRAMS.to_vec()));
        assert_eq!(list(&["redis", "stress-ng"]), Ok(vec![Program::Redis, Program::StressNg]));
        assert!(list(&["stress"]).expect_err("unknown").contains("stress-ng, sort, redis"));
        assert!(list(&["sort", "sort"]).expect_err("twice").contains("already"));
    }
}
