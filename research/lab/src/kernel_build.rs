//! `rampack-lab kernel-build`: a build of the kernel in a memory cgroup, with swap of any kind.
//!
//! With this measurement zswap was proposed in 2013 (N jobs, plain swap against zswap), and its
//! index was split in 2024 (real, user and sys). Each turn begins with a clean tree and dropped
//! caches. It ends with the build or at the time limit.

mod report;
mod source;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::KernelBuildArgs;
use crate::pressure::{Ended, SwapGroup, forget_files};
use crate::programs::{Running, last_words};
use crate::swap::{KINDS, Kind, Mode, Shop};
use report::{Report, Run, Setting};
use source::Source;

/// Runs the command.
///
/// # Errors
/// There is no source, or a kind of swap is impossible here; something cannot be taken down; a
/// build failed or timed out, which is reported after all figures; or the command was interrupted.
pub fn run(args: &KernelBuildArgs) -> Result<()> {
    let modes = Mode::list(&args.swap.swap, &KINDS)?;
    if args.limit.len() > args.jobs.len() {
        bail!("{} limits for {} numbers of jobs", args.limit.len(), args.jobs.len());
    }
    let limit = |number: usize| args.limit.get(number).or(args.limit.last()).copied();
    let settings = args.jobs.iter().enumerate().map(|(number, &jobs)| {
        limit(number).map(|limit_bytes| Setting { jobs, limit_bytes }).context("no limit")
    });
    let settings: Vec<Setting> = settings.collect::<Result<_>>()?;
    let bar = ProgressBar::new(u64::from(args.repeat) * (settings.len() * modes.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar.set_message("the source");
    let source = Source::find(args.source.as_deref(), &args.swap.dir, &bar)?;
    source.configure()?;
    let shop = Shop::new(&args.swap, &args.swap.dir, &modes)?;
    let mut report = Report::new(args, &source, &settings, &modes);
    for repetition in 0..args.repeat {
        for &setting in &settings {
            for turn in 0..modes.len() {
                let mode = &modes[(turn + repetition as usize) % modes.len()];
                bar.set_message(format!("make -j{} with {mode}", setting.jobs));
                let run = build(args, &shop, &source, setting, mode, repetition)
                    .with_context(|| format!("make -j{} with {mode}", setting.jobs))?;
                bar.suspend(|| eprintln!("{}", run.in_a_line()));
                report.runs.push(run);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    crate::report::show(&report, args.swap.json)?;
    let failed = report.runs.iter().filter(|run| run.outcome == "failed").count();
    if failed > 0 {
        bail!("{failed} of {} builds failed", report.runs.len());
    }
    Ok(())
}

/// Makes one build from a clean tree.
fn build(
    args: &KernelBuildArgs,
    shop: &Shop,
    source: &Source,
    setting: Setting,
    mode: &Mode,
    repetition: u32,
) -> Result<Run> {
    source.clean()?;
    let limit = (mode.kind != Kind::None).then_some(setting.limit_bytes);
    let timeout = Duration::from_secs(args.swap.timeout.into());
    let mut swap_group = SwapGroup::new(shop, mode, limit, timeout)?;
    let log = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut command: Command = source.make();
    command.arg(format!("-j{}", setting.jobs));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
    // A process group of its own: Ctrl-C reaches only us, and we take the swap away in order.
    command.process_group(0);
    swap_group.take(&mut command)?;
    forget_files()?;
    swap_group.begin()?;
    let mut running = Running::start(&mut command, false)?;
    let (ended, measured) = swap_group.wait(running.child(), "make")?;
    swap_group.end()?;
    let (outcome, message) = match ended {
        Ended::Itself(status) if status.success() => ("done", None),
        Ended::Itself(status) => {
            let words = last_words(log);
            let from = words.lines().count().saturating_sub(8);
            let words: Vec<&str> = words.lines().skip(from).collect();
            ("failed", Some(format!("{status}: {}", words.join("\n"))))
        }
        Ended::TimedOut => ("timeout", None),
    };
    let swap = mode.to_string();
    Ok(Run { setting, swap, repetition, outcome, message, measured })
}
