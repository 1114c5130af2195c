//! CPU time by groups of code: `perf record` on the whole machine while something runs.
//!
//! The process and the name of the function give the group. For a run with our swap the groups
//! separate our code (engine, codec), the way of pages to us (FUSE, the loop device, the kernel's
//! block layer), and the program itself.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::TempDir;

use crate::interrupt;
use crate::programs::{self, Running, last_words};
use crate::sys;
use crate::table;

/// Samples a second of each CPU. The number is odd to avoid the rhythm of timers.
const RATE: u32 = 199;
/// Time that perf may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of functions listed for each group.
const NAMED: usize = 4;

/// A running profile.
pub struct Recorder {
    perf: std::path::PathBuf,
    running: Running,
    directory: TempDir,
    server: Option<u32>,
    log: std::fs::File,
}

/// Shares of CPU time. Idle CPUs are left out.
#[derive(Clone, Debug, Serialize)]
pub struct Shares {
    /// Number of samples.
    pub samples: u64,
    /// Samples a second of each CPU.
    pub rate: u32,
    /// The share of each group.
    pub groups: Vec<Share>,
}

/// The share of one group.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// Its name.
    pub group: &'static str,
    /// Percent of all samples.
    pub percent: f64,
    /// Its largest functions, with percents of all samples.
    pub functions: Vec<(String, f64)>,
}

/// A sample: the process and the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sample<'a> {
    command: &'a str,
    process: u32,
    symbol: &'a str,
    object: &'a str,
}

impl Recorder {
    /// Starts the profile; `server` is the process that serves swap, if there is one.
    ///
    /// # Errors
    /// perf is not installed, or may not record.
    pub fn start(server: Option<u32>) -> Result<Recorder> {
        let perf = programs::find("perf")
            .context("perf is not installed; the package linux-perf brings it")?;
        let directory =
            TempDir::with_prefix("rampack-lab-").context("cannot make a temporary directory")?;
        let log = tempfile::tempfile().context("cannot make a temporary file")?;
        let data = directory.path().join("perf.data");
        let mut command = Command::new(&perf);
        command.args(["record", "--all-cpus", "--event", "cpu-clock", "--freq"]);
        command.arg(RATE.to_string()).arg("--output").arg(&data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
        let mut running = Running::start(&mut command, false)?;
        let begun = interrupt::wait_for("perf record", PATIENCE, || {
            running.check()?;
            Ok(data.metadata().is_ok_and(|data| data.len() > 0).then_some(()))
        });
        if let Err(error) = begun {
            bail!("{error:#}: {}", last_words(log));
        }
        Ok(Recorder { perf, running, directory, server, log })
    }

    /// Stops perf and counts the samples.
    ///
    /// # Errors
    /// perf fails.
    pub fn finish(mut self) -> Result<Shares> {
        let data = self.directory.path().join("perf.data");
        sys::interrupt(self.running.child()).context("perf record")?;
        interrupt::wait_for("perf record", PATIENCE, || Ok(self.running.child().try_wait()?))?;
        let output = Command::new(&self.perf)
            .args(["script", "--fields", "comm,pid,ip,sym,dso", "--input"])
            .arg(&data)
            .stdin(Stdio::null())
            .output()
            .context("perf script")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("perf script: {}: {said}: {}", output.status, last_words(self.log));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let me = std::process::id();
        Ok(shares(
            text.lines().filter_map(Sample::parse).filter(|it| it.process != me),
            self.server,
        ))
    }
}

impl Sample<'_> {
    /// Parses a line `command process address symbol (object)`. The command may contain blanks.
    fn parse(line: &str) -> Option<Sample<'_>> {
        let (rest, object) = line.trim().strip_suffix(')')?.rsplit_once(" (")?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let is_address = |word: &&str| word.len() >= 6 && u64::from_str_radix(word, 16).is_ok();
        // The address is the first hexadecimal word after a number.
        let at = (2..words.len()).find(|&at| {
            words.get(at).is_some_and(is_address) && words[at - 1].parse::<u32>().is_ok()
        })?;
        let symbol = rest.split_once(words[at]).map_or("", |(_, symbol)| symbol).trim();
        let process = words[at - 1].parse().ok()?;
        let command = rest.split_once(words[at - 1]).map_or("", |(name, _)| name).trim();
        Some(Sample { command, process, symbol, object })
    }

    fn is_kernel(&self) -> bool {
        self.object.starts_with("[kernel") || self.object.starts_with("[guest.kernel")
    }

    /// The group of the sample. `None` if the CPU was idle or ran perf itself.
    fn group(&self, server: Option<u32>) -> Option<&'static str> {
        let has = |words: &[&str]| words.iter().any(|word| self.symbol.contains(word));
        if self.command.starts_with("swapper") || self.command.starts_with("perf") {
            return None;
        }
        let kernel = self.is_kernel();
        Some(match () {
            () if Some(self.process) == server
                && kernel
                && has(&["fuse", "iov_iter", "splice"]) =>
            {
                "transport: FUSE, in the daemon"
            }
            () if Some(self.process) == server && kernel => "transport: kernel, in the daemon",
            () if Some(self.process) == server => ours(self.symbol),
            () if kernel && has(&["fuse", "loop_", "lo_rw", "lo_"]) => {
                "transport: FUSE and loop, elsewhere"
            }
            () if self.command.starts_with("kworker") || self.command.starts_with("loop") => {
                "transport: kernel workers"
            }
            () if kernel && has(&["zram", "zswap", "lzo", "lz4", "zs_", "zpool", "LZ4"]) => {
                "the kernel's zram and zswap"
            }
            () if self.command.starts_with("kswapd") || self.command.starts_with("kcompactd") => {
                "kernel: other threads"
            }
            () if kernel => "kernel: the programs' faults, reclaim, files",
            () => "the programs",
        })
    }
}

/// The part of our daemon that a function belongs to.
fn ours(symbol: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| symbol.contains(word));
    match () {
        () if has(&[
            "zcomp", "LZ4", "lz4", "lzo", "ZSTD", "HUF_", "FSE_", "deflate", "eight42",
        ]) =>
        {
            "ours: codec"
        }
        () if has(&["fuse", "Fuse"]) => "transport: FUSE, in the daemon",
        () if has(&["backing", "io_uring"]) => "ours: backing device",
        () => "ours: engine and the rest",
    }
}

/// Counts samples by group.
fn shares<'a>(samples: impl Iterator<Item = Sample<'a>>, server: Option<u32>) -> Shares {
    let mut groups: BTreeMap<&'static str, BTreeMap<String, u64>> = BTreeMap::new();
    let mut all = 0;
    for sample in samples {
        let Some(group) = sample.group(server) else { continue };
        all += 1;
        let name = match sample.symbol {
            "" | "[unknown]" => format!("{} ({})", sample.command, sample.object),
            symbol => symbol.split("+0x").next().unwrap_or(symbol).to_owned(),
        };
        *groups.entry(group).or_default().entry(name).or_default() += 1;
    }
    let percent = |count: u64| 100.0 * count as f64 / (all.max(1)) as f64;
    let share = |(group, functions): (&'static str, BTreeMap<String, u64>)| {
        let sum = functions.values().sum();
        let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
        functions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        functions.truncate(NAMED);
        let functions = functions.into_iter().map(|(name, count)| (name, percent(count)));
        Share { group, percent: percent(sum), functions: functions.collect() }
    };
    let mut groups: Vec<Share> = groups.into_iter().map(share).collect();
    groups.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    Shares { samples: all, rate: RATE, groups }
}

impl Shares {
    /// The shares as text.
    pub fn table(&self) -> String {
        let text = format!("{} samples, {} a second of a CPU\n", self.samples, self.rate);
        let mut table = table::unnamed();
        for share in &self.groups {
            let names = share.functions.iter().map(|(name, percent)| {
                let name: String = name.chars().take(60).collect();
                format!("{name} {percent:.1}")
            });
            let names: Vec<String> = names.collect();
            let (group, percent) = (share.group, share.percent);
            table.add_row([format!("{percent:.1} %"), group.to_owned(), names.join(", ")]);
        }
        text + &table::text(table, &[1, 2])
    }
}

#[cfg(test)]
mod tests;
