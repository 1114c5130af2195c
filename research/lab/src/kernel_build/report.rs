//! The results of the builds.

use serde::Serialize;

use super::source::Source;
use crate::args::KernelBuildArgs;
use crate::pressure::Measured;
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
}

impl Run {
    /// The result in one line, as progress.
    pub fn in_a_line(&self) -> String {
        let (measured, mb) = (&self.measured, |bytes: u64| bytes / 1_000_000);
        format!(
            "-j{} {:22} {} after {:.1} s, CPU {:.0} %, limit {} MB, swap from and to disk {} and \
             {} MB",
            self.setting.jobs,
            self.swap,
            self.outcome,
            measured.seconds,
            measured.cpu_percent,
            mb(self.setting.limit_bytes + measured.relieved_bytes),
            mb(measured.swap.disk_read_bytes),
            mb(measured.swap.disk_written_bytes)
        )
    }
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
}
