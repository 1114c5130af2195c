//! What the builds have shown.

use serde::Serialize;

use super::source::Source;
use super::{Run, Setting, tables};
use crate::args::KernelBuildArgs;
use crate::plot::Bars;
use crate::swap::Mode;

/// All of it, in the order of the builds.
#[derive(Serialize)]
pub struct Report {
    source: String,
    kernel: String,
    cpus: usize,
    swap_bytes: u64,
    max_pool_bytes: Option<u64>,
    timeout_seconds: u32,
    repeat: u32,
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

    /// CPUs that there are.
    pub fn cpus(&self) -> usize {
        self.cpus
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

    /// For people to read.
    pub fn text(&self) -> String {
        let pool = self.max_pool_bytes.map_or(String::new(), |bytes| {
            format!(", compressed pages in {} at most", units::human(bytes))
        });
        let rounds = match self.repeat {
            1 => String::new(),
            many => format!(", of {many} builds the one with the median time"),
        };
        let mut text = format!(
            "{}\nLinux {}, {} CPUs, {} of swap{pool}, {} s at most{rounds}\n",
            self.source,
            self.kernel,
            self.cpus,
            units::human(self.swap_bytes),
            self.timeout_seconds
        );
        text.push_str(&tables::figures(self));
        text.push_str(&tables::input_output(self));
        text.push_str(&tables::run_time(self));
        text.push_str(&tables::cpu(self));
        text.push_str(&tables::real_user_sys(self));
        for run in &self.runs {
            if let Some(message) = &run.message {
                let (jobs, swap) = (run.setting.jobs, &run.swap);
                text.push_str(&format!("\nmake -j{jobs} with {swap} failed: {message}\n"));
            }
            if let Some(shares) = &run.profile {
                let (jobs, swap) = (run.setting.jobs, &run.swap);
                text.push_str(&format!("\nCPU time of -j{jobs} with {swap}\n{}", shares.table()));
            }
        }
        text
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
