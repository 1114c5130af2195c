//! The results of the builds.

use serde::Serialize;

use super::source::Source;
use crate::args::KernelBuildArgs;
use crate::plot::Bars;
use crate::pressure::Measured;
use crate::profile::Shares;
use crate::swap::Mode;

/// The number of jobs, and the memory of all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Setting {
    /// `make -j`.
    pub jobs: u32,
    /// Bytes of memory.
    pub limit_bytes: u64,
}

/// A build.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The jobs and the memory.
    #[serde(flatten)]
    pub setting: Setting,
    /// The kind of swap.
    pub swap: String,
    /// The number of the repetition, from 0.
    pub repetition: u32,
    /// `done`, `timeout` or `failed`.
    pub outcome: &'static str,
    /// The last messages of a failed build.
    pub message: Option<String>,
    /// The figures. A killed build has those until it was killed.
    pub measured: Measured,
    /// The CPU time by groups of code, if the command line asks for it.
    pub profile: Option<Shares>,
}

/// All results, in the order of the builds.
#[derive(Serialize)]
pub struct Report {
    /// The source.
    pub source: String,
    /// The release of the running kernel.
    pub kernel: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Bytes of swap.
    pub swap_bytes: u64,
    /// Bytes of memory that compressed pages may take.
    pub max_pool_bytes: Option<u64>,
    /// Seconds after which a build is killed.
    pub timeout_seconds: u32,
    /// Builds of each kind of swap.
    pub repeat: u32,
    /// Jobs and memory, in the order of the command line.
    pub settings: Vec<Setting>,
    /// Kinds of swap, in the order of the command line.
    pub swaps: Vec<String>,
    /// Every build.
    pub runs: Vec<Run>,
}

impl Report {
    /// A report before the first build.
    pub fn new(
        args: &KernelBuildArgs,
        source: &Source,
        settings: &[Setting],
        modes: &[Mode],
    ) -> Report {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Report {
            source: source.describe(),
            kernel: release.trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            swap_bytes: args.swap.swap_size,
            max_pool_bytes: args.swap.max_pool,
            timeout_seconds: args.swap.timeout,
            repeat: args.repeat,
            settings: settings.to_vec(),
            swaps: modes.iter().map(Mode::to_string).collect(),
            runs: Vec::new(),
        }
    }

    /// The build with the median time among those that ended by themselves, so all its figures are
    /// of one build. Else a build that was killed or failed.
    pub fn median(&self, setting: Setting, swap: &str) -> Option<&Run> {
        let mut runs: Vec<&Run> =
            self.runs.iter().filter(|run| run.setting == setting && run.swap == swap).collect();
        let time = |run: &Run| (run.outcome != "done", run.measured.seconds);
        runs.sort_by(|a, b| {
            let (a, b) = (time(a), time(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }

    /// The kind of swap that others are compared with: the plain file, or the first with a limit.
    pub fn base(&self) -> Option<&str> {
        let plain = self.swaps.iter().find(|name| *name == "file");
        plain.or_else(|| self.swaps.iter().find(|name| *name != "none")).map(String::as_str)
    }

    /// Bars of run times.
    pub fn bars(&self) -> Bars {
        let group = |setting: &Setting| {
            format!("-j{} in {}", setting.jobs, units::human(setting.limit_bytes))
        };
        let seconds = |swap: &str| {
            let of = |&setting| self.median(setting, swap).map_or(0.0, |run| run.measured.seconds);
            self.settings.iter().map(of).collect()
        };
        Bars {
            title: self.source.clone(),
            unit: "seconds".to_owned(),
            groups: self.settings.iter().map(group).collect(),
            series: self.swaps.iter().map(|swap| (swap.clone(), seconds(swap))).collect(),
        }
    }
}
