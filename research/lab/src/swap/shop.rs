//! Swap as a measurement sees it, and the lock that only one process at a time has.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::mode::{Kind, Mode};
use crate::args::SwapArgs;
use crate::cgroup::numbers;
use crate::interrupt;
use crate::programs;
use crate::sys;

/// Kept open with a lock on it by whoever has swap on.
const LOCK: &str = "/run/rampack-lab.lock";
/// How long to wait for the lock: others measure for minutes.
const TURN: Duration = Duration::from_secs(3600);
/// Counters of the kernel's that tell about swap, from `/proc/vmstat`, in pages. Those of zswap
/// are there if the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Vmstat {
    /// Read from swap devices. What zswap had is not among them.
    pub pswpin: u64,
    /// Written to swap devices, by zswap too. What zswap took is not among them.
    pub pswpout: u64,
    /// Loaded from zswap.
    pub zswpin: Option<u64>,
    /// Stored in zswap.
    pub zswpout: Option<u64>,
    /// Written back from zswap to the swap device.
    pub zswpwb: Option<u64>,
}

impl Vmstat {
    /// As they stand.
    ///
    /// # Errors
    /// There is no `/proc/vmstat`.
    pub fn now() -> Result<Vmstat> {
        let text = fs::read_to_string("/proc/vmstat").context("/proc/vmstat")?;
        Ok(Vmstat::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Vmstat {
        let all = numbers(text);
        let get = |name: &str| all.get(name).copied();
        Vmstat {
            pswpin: get("pswpin").unwrap_or(0),
            pswpout: get("pswpout").unwrap_or(0),
            zswpin: get("zswpin"),
            zswpout: get("zswpout"),
            zswpwb: get("zswpwb"),
        }
    }

    /// What was added since.
    #[must_use]
    pub fn since(self, before: Vmstat) -> Vmstat {
        let both = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Vmstat {
            pswpin: self.pswpin.saturating_sub(before.pswpin),
            pswpout: self.pswpout.saturating_sub(before.pswpout),
            zswpin: both(self.zswpin, before.zswpin),
            zswpout: both(self.zswpout, before.zswpout),
            zswpwb: both(self.zswpwb, before.zswpwb),
        }
    }
}

/// What swap tells of itself after a measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Pages taken into compressed memory.
    pub stored: Option<u64>,
    /// Pages that came from there.
    pub loaded: Option<u64>,
    /// Pages that compressed memory gave to the disk behind it.
    pub written_back: Option<u64>,
    /// Bytes that swap has read from a disk.
    pub disk_read_bytes: u64,
    /// Bytes that swap has written to a disk.
    pub disk_written_bytes: u64,
    /// The most memory that compressed pages took, of some samples a second.
    pub pool_peak_bytes: Option<u64>,
    /// Of our daemon.
    pub daemon: Option<Daemon>,
}

/// What our daemon used.
#[derive(Clone, Debug, Serialize)]
pub struct Daemon {
    /// Seconds on the CPU in its own code.
    pub user_seconds: f64,
    /// Seconds in the kernel on its behalf.
    pub system_seconds: f64,
    /// Memory in use at the end.
    pub resident_bytes: u64,
    /// Memory in use at most.
    pub resident_peak_bytes: u64,
    /// Rows of its control tree that count, with what was added to each.
    pub rows: Vec<(String, i64)>,
}

/// Swap that is on until this is dropped.
pub trait Area {
    /// The measurement begins: counters are judged from here.
    ///
    /// # Errors
    /// They cannot be read.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Looks at what goes up and down. Called some times a second.
    ///
    /// # Errors
    /// Whoever serves the swap is gone.
    fn sample(&mut self) -> Result<()> {
        Ok(())
    }

    /// What it tells, given what the kernel counted since `begin`.
    ///
    /// # Errors
    /// Counters cannot be read.
    fn told(&mut self, counted: Vmstat) -> Result<Told>;

    /// The process that serves it, for a profile.
    fn process(&self) -> Option<u32> {
        None
    }

    /// Takes it away; all that is in it is read back first.
    ///
    /// # Errors
    /// It stays.
    fn end(self: Box<Self>) -> Result<()>;
}

/// How swap is made.
pub struct Shop {
    /// A directory on a disk.
    pub(super) directory: PathBuf,
    pub(super) bytes: u64,
    pub(super) max_pool: Option<u64>,
    pub(super) rampack: Option<PathBuf>,
    /// Before all other swap.
    pub(super) first: bool,
    _turn: File,
}

impl Shop {
    /// Ready to make swap in `directory`: nobody else has any.
    ///
    /// # Errors
    /// Other swap is on and `--force` was not given; `rampack` is missing and wanted; interrupted.
    pub fn new(args: &SwapArgs, directory: &Path, modes: &[Mode]) -> Result<Shop> {
        let rampack = match modes.iter().any(|mode| mode.kind == Kind::Rampack) {
            true => Some(args.rampack.clone().map_or_else(programs::beside_us, Ok)?),
            false => None,
        };
        let turn = turn()?;
        let others = active()?;
        let first = !others.is_empty();
        if first && !args.force {
            bail!(
                "this machine swaps to {} already, so nobody could tell who used which; take it \
                 away (swapoff PATH), or use --force, and ours comes first",
                others.join(", ")
            );
        }
        if first {
            eprintln!("warning: other swap is on ({}); ours comes first", others.join(", "));
        }
        Ok(Shop {
            directory: directory.to_owned(),
            bytes: args.swap_size,
            max_pool: args.max_pool,
            rampack,
            first,
            _turn: turn,
        })
    }
}

/// Waits until no other process of this program has swap on.
fn turn() -> Result<File> {
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK);
    let file = open.with_context(|| format!("cannot write {LOCK}; swap takes root"))?;
    let mut told = false;
    interrupt::wait_for("another rampack-lab that has swap on", TURN, || {
        if sys::try_lock(&file).with_context(|| LOCK.to_owned())? {
            return Ok(Some(()));
        }
        if !told {
            eprintln!("waiting for another rampack-lab that has swap on");
            told = true;
        }
        Ok(None)
    })?;
    Ok(file)
}

/// Paths of the swap that is on.
///
/// # Errors
/// There is no `/proc/swaps`.
pub fn active() -> Result<Vec<String>> {
    let text = fs::read_to_string("/proc/swaps").context("/proc/swaps")?;
    Ok(paths(&text))
}

/// The first column of `/proc/swaps`.
pub(super) fn paths(text: &str) -> Vec<String> {
    let first = |line: &str| line.split_ascii_whitespace().next().map(str::to_owned);
    text.lines().skip(1).filter_map(first).collect()
}
