//! The memory, the descriptors and the threads of the server, and whether they stay as they are.

use std::fs;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use units::human;

/// What a process has at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Sample {
    /// Bytes of resident memory.
    pub rss: u64,
    pub descriptors: u64,
    pub threads: u64,
}

/// Fewer samples tell nothing.
const FEWEST: usize = 60;
/// The growth that is no growth: a tenth and some MiB, some descriptors, some threads. Waiters and
/// senders of NBD come and go.
const MORE_BYTES: u64 = 32 << 20;
const MORE_DESCRIPTORS: u64 = 12;
const MORE_THREADS: u64 = 6;

impl Sample {
    /// What process `id` has now.
    ///
    /// # Errors
    /// The process is gone.
    pub fn of(id: u32) -> Result<Sample> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).context("the server")?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            let number = line.split_ascii_whitespace().next().unwrap_or_default();
            number.parse::<u64>().with_context(|| format!("{name} of the server"))
        };
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).context("the server")?.count();
        Ok(Sample {
            rss: number("VmRSS:")? * 1024,
            descriptors: descriptors as u64,
            threads: number("Threads:")?,
        })
    }

    fn most(samples: &[Sample]) -> Sample {
        let most = |of: fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or_default();
        Sample {
            rss: most(|it| it.rss),
            descriptors: most(|it| it.descriptors),
            threads: most(|it| it.threads),
        }
    }
}

/// The most of the second and of the last third of a run; the first third is the warm-up. `None`
/// for a short run.
pub fn thirds(samples: &[Sample]) -> Option<[Sample; 2]> {
    let third = samples.len() / 3;
    let of = |n: usize| Sample::most(&samples[n * third..(n + 1) * third]);
    (samples.len() >= FEWEST).then(|| [of(1), of(2)])
}

/// # Errors
/// The last third of the run took more than the second one; the message says of what.
pub fn judge([before, after]: [Sample; 2]) -> Result<()> {
    if after.rss > before.rss + before.rss / 10 + MORE_BYTES {
        bail!("the server grew from {} of memory to {}", human(before.rss), human(after.rss));
    }
    for (what, before, after, more) in [
        ("descriptors", before.descriptors, after.descriptors, MORE_DESCRIPTORS),
        ("threads", before.threads, after.threads, MORE_THREADS),
    ] {
        if after > before + more {
            bail!("the server grew from {before} {what} to {after}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_noticed_after_the_warm_up_only() {
        let sample = |second: u64| Sample { rss: 200 << 20, descriptors: 40, threads: second };
        let flat: Vec<Sample> =
            (0..90).map(|second| Sample { threads: 20 + second.min(30), ..sample(0) }).collect();
        judge(thirds(&flat).unwrap()).unwrap();
        let says = |change: fn(&mut Sample, u64)| {
            let mut samples = flat.clone();
            samples.iter_mut().zip(0..).for_each(|(sample, second)| change(sample, second));
            judge(thirds(&samples).unwrap()).unwrap_err().to_string()
        };
        assert!(says(|it, second| it.rss += second << 22).contains("of memory"));
        assert!(says(|it, second| it.descriptors += second).contains("descriptors"));
        assert!(says(|it, second| it.threads += second).contains("threads"));
        assert_eq!(thirds(&flat[..20]), None);
    }

    #[test]
    fn this_process_has_something() {
        let own = Sample::of(std::process::id()).unwrap();
        assert!(own.rss > 1 << 20 && own.descriptors > 2 && own.threads > 0, "{own:?}");
    }
}
