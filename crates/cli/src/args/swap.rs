//! The command line of swap devices and of the selftest.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Subcommand};

use super::sandbox::SandboxOptions;
use super::values::{
    FRONTS, LAYOUTS, SWAP_TRANSPORTS, SWITCH, Size, algorithm, algorithm_help, assignment,
    disk_size, number, one_of, pool_size, size,
};
use service::protocol::{Attribute, BackingLayout};
use service::transport::{Front, SwapTransport};

pub(super) const SWAP_NOTES: &str = "\
The daemon compresses the pages that the kernel swaps out and keeps them in memory. If there is a \
backing file or device, it writes the oldest pages back to it, and pages that do not compress go \
there at once. `rampack selftest swap` tests it on this machine.";

const SWAP_ON_NOTES: &str = "\
A running daemon gets the swap device. Without one, this command becomes the daemon. It ends with \
Ctrl-C, SIGTERM, `rampack stop` or `rampack swap off`, and reads everything back first. If the \
daemon is killed (SIGKILL), the swapped pages are lost: a program that needs one gets SIGBUS. \
Under `rampack keep` or systemd the next daemon serves them, and the program waits. The daemon \
asks for the following. This command and `rampack status` name what it did not get:
  the kernel's driver ublk               modprobe ublk_drv (Linux 6.4)
  its memory locked and not moved        CAP_IPC_LOCK, vm.compact_unevictable_allowed
  real-time threads                      CAP_SYS_NICE (SCHED_RR)
  no I/O for its own memory              CAP_SYS_RESOURCE (PR_SET_IO_FLUSHER)
  no kill by the OOM killer              CAP_SYS_RESOURCE (oom_score_adj -1000)
  no memory limit of a control group on itself

Examples:
  sudo rampack swap on --size 8G                               in memory alone, as zram
  sudo rampack swap on --backing /dev/sdb2 --memory 2G         the oldest go to a partition
  sudo rampack swap on --backing /var/swap.rampack --size 8G   or to a file, written full first
  sudo rampack swap off --all";

/// `rampack swap`.
#[derive(Args, Debug)]
pub struct Swap {
    /// On or off.
    #[command(subcommand)]
    pub action: SwapAction,
}

/// What to do with swap devices.
#[derive(Subcommand, Debug)]
pub enum SwapAction {
    /// Make a swap device and swap on.
    #[command(after_help = SWAP_ON_NOTES)]
    On(SwapOn),
    /// Swap off: read everything back and remove the swap device.
    #[command(after_help = "Without enough memory to read everything back, the device stays \
        in use and loses nothing. The command waits for as long as it takes.")]
    Off(SwapOff),
}

/// `rampack swap on`.
#[derive(Args, Clone, Default, Debug)]
pub struct SwapOn {
    /// The size of the swap device [default: the size of the backing file or device]
    #[arg(long, short, value_name = "SIZE", value_parser = disk_size)]
    #[arg(required_unless_present_any = ["backing", "config"])]
    pub size: Option<Size>,

    /// A file or an unused block device to write the oldest pages back to. A missing file is made,
    /// and removed at the end.
    #[arg(long, value_name = "PATH")]
    pub backing: Option<PathBuf>,

    /// Write pages back as they are. Otherwise they are encrypted, with a key that ends with the
    /// swap device, and checked when they are read, which takes 6 MiB of memory for each GiB of the
    /// device
    #[arg(long, requires = "backing")]
    pub plain_backing: bool,

    /// How pages lie on --backing: pages gives each a block of its own; log packs compressed
    /// pages one behind the other, which writes and takes less: --size may be more than --backing
    /// holds [default: pages]
    #[arg(long, value_name = "LAYOUT", value_parser = one_of(LAYOUTS), requires = "backing")]
    pub backing_layout: Option<BackingLayout>,

    /// The most memory for the cache: a size, or a percentage of all memory [default: 20%, or
    /// 75% without --backing]
    #[arg(long, value_name = "SIZE|N%", value_parser = pool_size, alias = "max-pool")]
    pub memory: Option<String>,

    /// How the kernel reaches the swap device: by its driver ublk (Linux 6.4), or by a loop device
    /// on a FUSE file, which may hang when memory is short [default: ublk]
    #[arg(long, value_name = "WAY", env = "RAMPACK_SWAP_TRANSPORT")]
    #[arg(value_parser = one_of(SWAP_TRANSPORTS))]
    pub transport: Option<SwapTransport>,

    /// Have the kernel's zswap keep pages first, as long as there is a swap device: faults take the
    /// kernel's own time, and the oldest pages come to the cache, instead of to a disk [default:
    /// zswap stays as it is]
    #[arg(long, value_name = "WHAT", value_parser = one_of(FRONTS))]
    pub front: Option<Front>,

    /// The memory to keep ready for the next pages [default: 1/64 of all memory, 4M to 64M]. With
    /// 0, pages that need memory are refused
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub headroom: Option<Size>,

    /// Call the kernel's OOM killer after this time without progress: memory is out, and neither
    /// the cache nor the backing device takes a page. 0 is never [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = number(0..=u32::MAX))]
    pub oom_after: Option<u32>,

    /// The priority of the swap space; the kernel fills the highest first. -1 is after all others.
    /// Partitions of the device get this priority and the next lower ones
    #[arg(long, short, value_name = "N", default_value_t = 100, allow_negative_numbers = true)]
    #[arg(value_parser = number(-1..=32767_i32))]
    pub priority: i32,

    #[allow(missing_docs)]
    #[arg(long, short, value_name = "NAME", value_parser = algorithm, help = algorithm_help())]
    #[arg(alias = "compressor")]
    pub algorithm: Option<String>,

    /// Compress pages that are not read for a minute again with zstd, which takes less memory and
    /// longer to read [default: on]
    #[arg(long, value_name = "on|off", value_parser = one_of(SWITCH), hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub auto: Option<bool>,

    /// `--auto=off`.
    #[arg(long, hide = true, conflicts_with = "auto")]
    pub no_auto: bool,

    /// The CPU time that this may take, in percent of one CPU [default: 5]
    #[arg(long, value_name = "PERCENT")]
    #[arg(value_parser = number(1..=100_u32))]
    pub auto_cpu: Option<u32>,

    /// Set a parameter of the cache before it begins (see /sys/module/zswap/parameters). May be
    /// repeated.
    #[arg(long, value_name = "PARAM=VALUE", value_parser = assignment())]
    pub set: Vec<Attribute>,

    /// Overwrite the contents of the backing file or device. Accept one that others may read, that
    /// is in memory, or that a program serves. Serve swap space without ublk, or with the daemon in
    /// a control group that limits its memory. Most of these may hang the machine.
    #[arg(long)]
    pub force: bool,

    /// Make the swap devices of the configuration (`rampack config`), or of FILE alone
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with_all = ["size", "backing", "memory", "headroom", "oom_after", "priority"])]
    #[arg(conflicts_with_all = ["algorithm", "auto", "no_auto", "auto_cpu", "set", "force"])]
    #[arg(conflicts_with_all = ["plain_backing", "backing_layout", "front"])]
    pub config: Option<Option<PathBuf>>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub sandbox: SandboxOptions,
}

impl SwapOn {
    /// Refuses `--transport` beside `--config`. The variable of that option is for sections too.
    ///
    /// # Errors
    /// As of other options that conflict.
    pub fn check(matches: &ArgMatches, command: &mut Command) -> Result<(), clap::Error> {
        let on = matches.subcommand_matches("swap").and_then(|it| it.subcommand_matches("on"));
        let is_typed = |on: &ArgMatches| {
            let source = on.value_source("transport");
            on.contains_id("config") && source == Some(ValueSource::CommandLine)
        };
        if !on.is_some_and(is_typed) {
            return Ok(());
        }
        let message = "the argument '--config[=<FILE>]' cannot be used with '--transport <WAY>'";
        let swap = command.find_subcommand_mut("swap");
        let on = swap.and_then(|it| it.find_subcommand_mut("on"));
        on.map_or(Ok(()), |on| Err(on.error(ErrorKind::ArgumentConflict, message)))
    }
}

/// `rampack swap off`.
#[derive(Args, Debug)]
pub struct SwapOff {
    /// The swap device, such as swap0. Needed only if there are several.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Remove all swap devices.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
}

/// `rampack selftest`.
#[derive(Args, Debug)]
pub struct Selftest {
    /// What to test.
    #[command(subcommand)]
    pub what: SelftestOf,
}

/// What can be tested.
#[derive(Subcommand, Debug)]
pub enum SelftestOf {
    /// Test swap space: run a program that needs more memory than its control group allows, with a
    /// swap device of rampack, and check every byte.
    #[command(after_help = "Needs root and a control group with the memory controller. It makes \
        a daemon, a swap device and a control group of its own, and removes them at the end, also \
        after Ctrl-C. Exit code 0 means that the test passed.")]
    Swap(SelftestSwap),
    /// What runs in the control group.
    #[command(hide = true)]
    Hungry(Hungry),
}

/// `rampack selftest swap`.
#[derive(Args, Clone, Debug)]
pub struct SelftestSwap {
    /// The size of the swap device.
    #[arg(long, short, value_name = "SIZE", default_value = "512M", value_parser = disk_size)]
    pub size: Size,
    /// The memory limit of the program. It uses three times as much.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = disk_size)]
    pub limit: Size,
    /// Also write back to this file or block device, with a cache that is too small for all pages.
    #[arg(long, value_name = "PATH")]
    pub backing: Option<PathBuf>,
    /// The number of times that everything is written and read back.
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = number(1..=1000_u32))]
    pub rounds: u32,
    #[allow(missing_docs)]
    #[arg(long, short, value_name = "NAME", value_parser = algorithm, help = algorithm_help())]
    #[arg(alias = "compressor")]
    pub algorithm: Option<String>,
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
