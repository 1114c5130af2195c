//! The interface between a measurement and its swap, and the lock that lets one process have swap.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::mode::{Kind, Mode};
use crate::args::KernelBuildArgs;
use crate::proc_files::{Counters, numbers};
use crate::{interrupt, programs};

/// The process that has swap on keeps this file open and locked.
const LOCK: &str = "/run/rampack-lab.lock";
/// Time to wait for the lock: other processes measure for minutes.
const TURN: Duration = Duration::from_secs(3600);
/// The kernel's swap counters in `/proc/vmstat`, in pages: read from swap devices and written to
/// them, also by zswap; loaded from zswap, stored in it, and written back by it. Those of zswap
/// exist if the kernel has zswap.
const COUNTERS: [&str; 5] = ["pswpin", "pswpout", "zswpin", "zswpout", "zswpwb"];

/// The kernel's swap counters now.
pub fn counters() -> Result<Counters> {
    let text = fs::read_to_string("/proc/vmstat").context("/proc/vmstat")?;
    let mut all = numbers(&text);
    all.retain(|name, _| COUNTERS.contains(&name.as_str()));
    Ok(all)
}

/// The figures of the swap after a measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// Pages stored in compressed memory.
    pub stored: Option<i64>,
    /// Pages loaded from compressed memory.
    pub loaded: Option<i64>,
    /// Pages written back from compressed memory to the disk behind it.
    pub written_back: Option<i64>,
    /// Bytes that swap has read from a disk.
    pub disk_read_bytes: i64,
    /// Bytes that swap has written to a disk.
    pub disk_written_bytes: i64,
    /// The most memory of compressed pages in any sample, with some samples a second.
    pub pool_peak_bytes: Option<i64>,
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
    fn told(&mut self, _counted: &Counters) -> Result<Told> {
        Ok(Told::default())
    }

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
        let rampack =
            match modes.iter().any(|mode| matches!(mode.kind, Kind::Rampack | Kind::Behind)) {
                true => Some(programs::rampack(args.rampack.as_deref())?),
                false => None,
            };
        let lock = turn()?;
        let others = active().iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let others = others.join(", ");
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
pub fn active() -> Vec<PathBuf> {
    host::swaps::all().into_iter().map(|active| active.path).collect()
}
