//! The command line of swap devices and of the selftest.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::{Size, algorithm, algorithm_help, assignment, disk_size, pool_size, size};
use crate::protocol::Attribute;
use crate::transport::SwapTransport;

pub(super) const SWAP_NOTES: &str = "\
What the kernel swaps out is compressed in the daemon's memory; the oldest pages are written back \
to the backing file or device, if there is one, and pages that do not compress go there at once. \
`rampack selftest swap` proves that it works on this machine.";

const SWAP_ON_NOTES: &str = "\
With a daemon running, the swap device is its; without one, this command becomes the daemon, until \
Ctrl-C, SIGTERM, `rampack stop` or `rampack swap off`, and reads everything back before it ends. A \
daemon that is killed (SIGKILL) takes what is swapped out with it: programs that need such a page \
get SIGBUS. So it needs, and tries to get, all of this; what it could not get it says, and \
`rampack status` too:
  the kernel's driver ublk               modprobe ublk_drv (Linux 6.4)
  its memory locked and not moved        CAP_IPC_LOCK, vm.compact_unevictable_allowed
  threads that are served at once        CAP_SYS_NICE (SCHED_RR)
  no I/O for its own memory              CAP_SYS_RESOURCE (PR_SET_IO_FLUSHER)
  not ended when memory is out           CAP_SYS_RESOURCE (oom_score_adj -1000)
  no memory limit of a control group on itself

Examples:
  sudo rampack swap on --size 8G                               in memory alone, as zram
  sudo rampack swap on --backing /dev/sdb2 --max-pool 2G       the oldest go to a partition
  sudo rampack swap on --backing /var/swap.rampack --size 8G   or to a file, written full first
  sudo rampack swap off --all";

/// `rampack swap`.
#[derive(Args, Debug)]
pub struct Swap {
    /// On or off.
    #[command(subcommand)]
    pub action: SwapAction,
}

/// What is done about swap devices.
#[derive(Subcommand, Debug)]
pub enum SwapAction {
    /// Make a swap device and have the kernel swap to it.
    #[command(after_help = SWAP_ON_NOTES)]
    On(SwapOn),
    /// Read everything back, and take a swap device away.
    #[command(after_help = "Without enough memory to read it back the device stays in use; \
        nothing is ever given up. It waits for as long as it takes.")]
    Off(SwapOff),
}

/// `rampack swap on`.
#[derive(Args, Clone, Default, Debug)]
pub struct SwapOn {
    /// How much can be swapped out to it [default: as much as the backing file or device has]
    #[arg(long, short, value_name = "SIZE", value_parser = disk_size)]
    #[arg(required_unless_present = "backing")]
    pub size: Option<Size>,

    /// A file or an unused block device that the oldest pages are written back to. A file that is
    /// not there is made, and removed in the end.
    #[arg(long, value_name = "PATH")]
    pub backing: Option<PathBuf>,

    /// Write pages back as they are. Otherwise they are encrypted, with a key that ends with the
    /// swap device, and checked when they are read, which takes 6 MiB of memory for each GiB of the
    /// device
    #[arg(long, requires = "backing")]
    pub plain_backing: bool,

    /// How much memory the cache may take: a size, or a percentage of all memory [default: 20%, or
    /// 75% without --backing]
    #[arg(long, value_name = "SIZE|N%", value_parser = pool_size)]
    pub max_pool: Option<String>,

    /// How the kernel reaches the swap device: by its driver ublk (Linux 6.4), or by a loop device
    /// on a FUSE file, which may stand still when all memory is short [default: ublk]
    #[arg(long, value_name = "WAY", value_enum, env = "RAMPACK_SWAP_TRANSPORT")]
    pub transport: Option<SwapTransport>,

    /// Memory kept ready for the pages that come next [default: 1/32 of all memory, 8M to 64M];
    /// with 0, pages that need memory are refused
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub headroom: Option<Size>,

    /// When the cache and what is below it take no more pages, memory is out and programs only
    /// wait, for so long, the kernel's OOM killer is called; 0: never [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub oom_after: Option<u32>,

    /// The kernel uses swap space of higher priority first; -1 puts it after all other. Partitions
    /// of the device have this and the next lower ones
    #[arg(long, value_name = "N", default_value_t = 100, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i32).range(-1..=32767))]
    pub priority: i32,

    #[allow(missing_docs)]
    #[arg(long, value_name = "NAME", value_parser = algorithm, help = algorithm_help())]
    pub compressor: Option<String>,

    /// Set a parameter of the cache first (those of /sys/module/zswap/parameters); may be given
    /// several times.
    #[arg(long, value_name = "PARAM=VALUE", value_parser = assignment)]
    pub set: Vec<Attribute>,

    /// Overwrite what the backing file or device holds, and take one that others may read, that is
    /// in memory, or that a program serves; serve swap space without ublk, and also where the
    /// daemon's own memory is limited by a control group. Most of these may hang.
    #[arg(long)]
    pub force: bool,
}

/// `rampack swap off`.
#[derive(Args, Debug)]
pub struct SwapOff {
    /// The swap device, such as swap0; may be left out where there is only one.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// All of them.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

/// `rampack swapoff-helper`.
#[derive(Args, Clone, Debug)]
pub struct SwapoffHelper {
    /// What is not to be swapped to any more.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// `rampack selftest`.
#[derive(Args, Debug)]
pub struct Selftest {
    /// What is to be proved.
    #[command(subcommand)]
    pub what: SelftestOf,
}

/// What can be proved.
#[derive(Subcommand, Debug)]
pub enum SelftestOf {
    /// Swap space: a program that needs more memory than its control group may have finds every
    /// byte again, with only a swap device of rampack to make room.
    #[command(after_help = "Needs root and a control group with the memory controller. It makes \
        a daemon, a swap device and a control group of its own, and removes them in the end, also \
        after Ctrl-C. Exit code 0 says that it passed.")]
    Swap(SelftestSwap),
    /// What runs in the control group.
    #[command(hide = true)]
    Hungry(Hungry),
}

/// `rampack selftest swap`.
#[derive(Args, Clone, Debug)]
pub struct SelftestSwap {
    /// How large the swap device is.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = disk_size)]
    pub size: Size,
    /// How much memory the program may have; it uses three times as much.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = disk_size)]
    pub limit: Size,
    /// Write back to this file or block device as well, with a cache that is too small for all.
    #[arg(long, value_name = "PATH")]
    pub backing: Option<PathBuf>,
    /// How often everything is written and read back.
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    #[allow(missing_docs)]
    #[arg(long, value_name = "NAME", value_parser = algorithm, help = algorithm_help())]
    pub compressor: Option<String>,
}

/// The program of `rampack selftest swap`.
#[derive(Args, Clone, Debug)]
pub struct Hungry {
    /// How many pages it uses.
    #[arg(long)]
    pub pages: usize,
    /// How often.
    #[arg(long)]
    pub rounds: u32,
    /// From which everything follows that is written.
    #[arg(long)]
    pub seed: u64,
}
