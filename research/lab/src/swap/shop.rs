//! The interface between a measurement and its swap, and the lock that lets one process have swap.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::mode::{Kind, Mode};
use crate::args::KernelBuildArgs;
use crate::proc_files::numbers;
use crate::{interrupt, programs};

/// The process that has swap on keeps this file open and locked.
const LOCK: &str = "/run/rampack-lab.lock";
/// Time to wait for the lock: other processes measure for minutes.
const TURN: Duration = Duration::from_secs(3600);
/// The kernel's swap counters from `/proc/vmstat`, in pages. Those of zswap exist if the kernel has
/// zswap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Vmstat {
    /// Pages read from swap devices. Loads from zswap do not count.
    pub pswpin: u64,
    /// Pages written to swap devices, also by zswap. Stores to zswap do not count.
    pub pswpout: u64,
    /// Pages loaded from zswap.
    pub zswpin: Option<u64>,
    /// Pages stored in zswap.
    pub zswpout: Option<u64>,
    /// Pages written back from zswap to the swap device.
    pub zswpwb: Option<u64>,
}

impl Vmstat {
    /// The counters now.
    pub fn now() -> Result<Vmstat> {
        let text = fs::read_to_string("/proc/vmstat").context("/proc/vmstat")?;
        Ok(Vmstat::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Vmstat {
        let all = numbers::<u64>(text);
        let get = |name: &str| all.get(name).copied();
        Vmstat {
            pswpin: get("pswpin").unwrap_or(0),
            pswpout: get("pswpout").unwrap_or(0),
            zswpin: get("zswpin"),
            zswpout: get("zswpout"),
            zswpwb: get("zswpwb"),
        }
    }

    /// The growth of the counters since `before`.
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

/// The figures of the swap after a measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Pages stored in compressed memory.
    pub stored: Option<u64>,
    /// Pages loaded from compressed memory.
    pub loaded: Option<u64>,
    /// Pages written back from compressed memory to the disk behind it.
    pub written_back: Option<u64>,
    /// Bytes that swap has read from a disk.
    pub disk_read_bytes: u64,
    /// Bytes that swap has written to a disk.
    pub disk_written_bytes: u64,
    /// The most memory of compressed pages in any sample, with some samples a second.
    pub pool_peak_bytes: Option<u64>,
    /// The usage of our daemon.
    pub daemon: Option<Daemon>,
}

/// The usage of our daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Daemon {
    /// CPU seconds in its own code.
    pub user_seconds: f64,
    /// CPU seconds in the kernel for the daemon.
    pub system_seconds: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
    /// Peak of the resident memory.
    pub resident_peak_bytes: u64,
    /// Counters of its control tree, each with its growth.
    pub rows: Vec<(String, i64)>,
}

/// Swap that is on until drop.
pub trait Area {
    /// Begins the measurement: takes the base of the counters.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Samples values that rise and fall. Called some times a second.
    fn sample(&mut self) -> Result<()> {
        Ok(())
    }

    /// The figures of the swap; `counted` is the growth of the kernel's counters since `begin`.
    fn told(&mut self, counted: Vmstat) -> Result<Told>;

    /// Takes the swap away. The kernel first reads all its pages back.
    fn end(self: Box<Self>) -> Result<()>;
}

/// Makes swap.
pub struct Shop {
    /// A directory on a disk.
    pub(super) directory: PathBuf,
    pub(super) bytes: u64,
    pub(super) max_pool: Option<u64>,
    pub(super) rampack: Option<PathBuf>,
    /// Whether our swap comes before all other swap.
    pub(super) first: bool,
    /// The right to have swap on.
    _lock: File,
}

impl Shop {
    /// Waits until no other process has swap, then is ready to make swap in `directory`.
    pub fn new(args: &KernelBuildArgs, modes: &[Mode]) -> Result<Shop> {
        let rampack = match modes.iter().any(|mode| mode.kind == Kind::Rampack) {
            true => Some(args.rampack.clone().map_or_else(programs::beside_us, Ok)?),
            false => None,
        };
        let lock = turn()?;
        let others = active()?.join(", ");
        if !others.is_empty() && !args.force {
            bail!(
                "this machine swaps to {others} already, so nobody could tell who used which; take \
                 it away (swapoff PATH), or use --force, and ours comes first"
            );
        }
        if !others.is_empty() {
            eprintln!("warning: other swap is on ({others}); ours comes first");
        }
        Ok(Shop {
            directory: args.dir.clone(),
            bytes: args.swap_size,
            max_pool: args.max_pool,
            rampack,
            first: !others.is_empty(),
            _lock: lock,
        })
    }
}

/// Waits until no other process of this program has swap on.
fn turn() -> Result<File> {
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK);
    let file = open.with_context(|| format!("cannot write {LOCK}; swap takes root"))?;
    let mut told = false;
    interrupt::wait_for("another rampack-lab that has swap on", TURN, || {
        if host::try_lock(&file).with_context(|| LOCK.to_owned())? {
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
pub fn active() -> Result<Vec<String>> {
    let text = fs::read_to_string("/proc/swaps").context("/proc/swaps")?;
    Ok(paths(&text))
}

/// The first column of `/proc/swaps`.
pub(super) fn paths(text: &str) -> Vec<String> {
    let first = |line: &str| line.split_ascii_whitespace().next().map(str::to_owned);
    text.lines().skip(1).filter_map(first).collect()
}
