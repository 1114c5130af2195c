//! What the builds have shown.

use serde::Serialize;

use super::source::Source;
use crate::args::KernelBuildArgs;
use crate::plot::Bars;
use crate::pressure::Measured;
use crate::profile::Shares;
use crate::swap::Mode;

/// Jobs, and the memory they have together.
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
    /// With how many jobs, in how much memory.
    #[serde(flatten)]
    pub setting: Setting,
    /// The kind of swap.
    pub swap: String,
    /// Which time, from 0.
    pub repetition: u32,
    /// `done`, `timeout` or `failed`.
    pub outcome: &'static str,
    /// What a failed build said last.
    pub message: Option<String>,
    /// The figures; of a build that was killed, until then.
    pub measured: Measured,
    /// Where CPUs spent their time, if that was asked for.
    pub profile: Option<Shares>,
}

/// All of it, in the order of the builds.
#[derive(Serialize)]
pub struct Report {
    /// What was built.
    pub source: String,
    /// The release of the kernel it ran on.
    pub kernel: String,
    /// CPUs that there are.
    pub cpus: usize,
    /// How much swap there was.
    pub swap_bytes: u64,
    /// Memory that compressed pages could take.
    pub max_pool_bytes: Option<u64>,
    /// When a build was killed.
    pub timeout_seconds: u32,
    /// Builds of each kind.
    pub repeat: u32,
    /// Jobs and memory, in the order asked for.
    pub settings: Vec<Setting>,
    /// Kinds of swap, likewise.
    pub swaps: Vec<String>,
    /// Every build.
    pub runs: Vec<Run>,
}

impl Report {
    /// Before the first build.
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

    /// The build with the median time among those that ended by themselves, so that its figures
    /// belong together; else one that was killed or failed.
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

    /// What others are compared with: the plain file, or the first that has a limit.
    pub fn base(&self) -> Option<&str> {
        let plain = self.swaps.iter().find(|name| *name == "file");
        plain.or_else(|| self.swaps.iter().find(|name| *name != "none")).map(String::as_str)
    }

    /// Run times, side by side.
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
