//! `rampack-lab kernel-build`: a build of the kernel in a memory cgroup, with swap of any kind.
//!
//! With this measurement zswap was proposed in 2013 (N jobs, plain swap against zswap), and its
//! index was split in 2024 (real, user and sys). Each turn begins with a clean tree and dropped
//! caches. It ends with the build or at the time limit.

mod source;

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::KernelBuildArgs;
use crate::pressure::{Ended, Measured, SwapGroup, forget_files};
use crate::programs::Running;
use crate::report;
use crate::swap::{Kind, Mode, Shop};
use source::Source;

/// The number of jobs, and the memory of all of them together.
#[derive(Clone, Copy, Serialize)]
struct Setting {
    jobs: u32,
    limit_bytes: u64,
}

/// A build.
#[derive(Serialize)]
struct Run {
    #[serde(flatten)]
    setting: Setting,
    swap: String,
    /// The number of the repetition, from 0.
    repetition: u32,
    /// `done`, `timeout` or `failed`.
    outcome: &'static str,
    /// The last messages of a failed build.
    message: Option<String>,
    /// The figures. A killed build has those until it was killed.
    measured: Measured,
}

/// Runs the command.
pub fn run(args: &KernelBuildArgs) -> Result<Value> {
    let modes = Mode::list(&args.swap)?;
    if args.limit.len() > args.jobs.len() {
        bail!("{} limits for {} numbers of jobs", args.limit.len(), args.jobs.len());
    }
    let limits = args.limit.iter().chain(std::iter::repeat(args.limit.last().context("no limit")?));
    let setting = |(&jobs, &limit_bytes)| Setting { jobs, limit_bytes };
    let settings: Vec<Setting> = args.jobs.iter().zip(limits).map(setting).collect();
    let source = Source::find(args.source.as_deref(), &args.dir)?;
    source.configure()?;
    let shop = Shop::new(args, &modes)?;
    let bar = report::begin(u64::from(args.repeat) * (settings.len() * modes.len()) as u64);
    bar.enable_steady_tick(Duration::from_millis(500));
    let mut runs: Vec<Run> = Vec::new();
    for repetition in 0..args.repeat {
        for &setting in &settings {
            for turn in 0..modes.len() {
                let mode = &modes[(turn + repetition as usize) % modes.len()];
                let what = format!("make -j{} with {mode}", setting.jobs);
                report::step(what.clone())?;
                let run = build(args, &shop, &source, setting, mode, repetition).context(what)?;
                bar.suspend(|| eprintln!("{}", run.in_a_line()));
                runs.push(run);
            }
        }
    }
    let failed = runs.iter().filter(|run| run.outcome == "failed").count();
    let failure = format!("{failed} of {} builds failed", runs.len());
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(json!({
        "source": source.describe(),
        "kernel": release.trim(),
        "cpus": std::thread::available_parallelism().map_or(1, usize::from),
        "swap_bytes": args.swap_size,
        "max_pool_bytes": args.max_pool,
        "timeout_seconds": args.timeout,
        "repeat": args.repeat,
        "settings": settings,
        "swaps": modes.iter().map(Mode::to_string).collect::<Vec<String>>(),
        "runs": runs,
        "failure": (failed > 0).then_some(failure),
    }))
}

impl Run {
    /// The result in one line, as progress.
    fn in_a_line(&self) -> String {
        let (measured, mb) = (&self.measured, |bytes: i64| bytes / 1_000_000);
        format!(
            "-j{} {:22} {} after {:.1} s, CPU {:.0} %, limit {} MB, swap from and to disk {} and \
             {} MB",
            self.setting.jobs,
            self.swap,
            self.outcome,
            measured.seconds,
            measured.cpu_percent,
            mb((self.setting.limit_bytes + measured.relieved_bytes) as i64),
            mb(measured.swap.disk_read_bytes),
            mb(measured.swap.disk_written_bytes)
        )
    }
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
    let timeout = Duration::from_secs(args.timeout.into());
    let mut swap_group = SwapGroup::new(shop, mode, limit, timeout)?;
    let mut command = source.make();
    command.arg(format!("-j{}", setting.jobs)).stdout(Stdio::null());
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
            let words = running.last_words();
            let from = words.lines().count().saturating_sub(8);
            let words: Vec<&str> = words.lines().skip(from).collect();
            ("failed", Some(format!("{status}: {}", words.join("\n"))))
        }
        Ended::TimedOut => ("timeout", None),
    };
    let swap = mode.to_string();
    Ok(Run { setting, swap, repetition, outcome, message, measured })
}
