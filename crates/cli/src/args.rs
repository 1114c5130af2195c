//! The command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use control::ControlError;

use crate::columns;
use service::protocol::Attribute;
pub use service::transport::{SwapTransport, Transport};

mod config;
mod estimate;
mod fsck;
mod nbd;
mod sandbox;
mod snapshots;
mod swap;
mod values;
mod vhost;
mod watch;
use config::CONFIG_NOTES;
pub use config::{Config, ConfigAction, ConfigApply, ConfigFiles, ConfigImport};
use estimate::ESTIMATE_NOTES;
pub use estimate::Estimate;
use fsck::FSCK_NOTES;
pub use fsck::Fsck;
pub use nbd::NbdOptions;
pub use sandbox::{SandboxOption, SandboxOptions};
use snapshots::{CLONE_NOTES, RESTORE_NOTES, SNAPSHOT_NOTES};
pub use snapshots::{Cloning, Restore, Snapshot};
use swap::SWAP_NOTES;
pub use swap::{Hungry, Selftest, SelftestOf, SelftestSwap, Swap, SwapAction, SwapOff, SwapOn};
pub use values::{ColumnNames, Size};
use values::{
    SWITCH, TRANSPORTS, algorithm, algorithm_help, assigned, assignment, disk_size, fs_name,
    number, one_of, size,
};
pub(crate) use values::{absolute, attribute};
pub use vhost::VhostOptions;
use watch::{METRICS_NOTES, TOP_NOTES};
pub use watch::{Metrics, Status, Top};

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 refused or failed (the message says why and ends in the error's symbol), or \
doctor found a problem, 2 the command line was wrong, 3 a daemon of --config could not begin. \
fsck: 4 errors were found, 8 not checked. exec and `up -- COMMAND`: the command's; 126 or 127 if \
exec cannot run it; 128 and the number of the signal that ended the command of up, or a daemon.

Sizes are bytes, with an optional suffix K M G T P E (times 1024 each), or expressions of them and \
of ram, the memory of this machine or control group: `min(ram / 2, 8G)`, `30%`.";

/// The version, with the commit if `cargo xtask dist` built the program, and the features.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("RAMPACK_COMMIT").filter(|commit| !commit.is_empty());
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    let features = [
        ("metrics", cfg!(feature = "metrics")),
        ("remote", cfg!(feature = "remote")),
        ("top", cfg!(feature = "top")),
        ("vhost", cfg!(feature = "vhost")),
    ];
    let features = features.into_iter().filter_map(|(name, is_in)| is_in.then_some(name));
    let features = features.collect::<Vec<_>>().join(" ");
    let with = if features.is_empty() { "" } else { ", with " };
    format!("{}{commit}{with}{features}", env!("CARGO_PKG_VERSION"))
});

/// Compressed RAM disks and compressed swap space, without a kernel module.
#[derive(Parser, Debug)]
#[command(name = "rampack", bin_name = "rampack", version = VERSION.as_str())]
#[command(after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// The daemon's directory, for its sockets, files and links to devices. The daemon makes it if
    /// it is missing, and otherwise wants it empty [default: /run/rampack for root, else
    /// $XDG_RUNTIME_DIR/rampack]
    #[arg(long, global = true, env = "RAMPACK_ROOT", value_name = "DIR", hide_env_values = true)]
    #[arg(help_heading = "In every command")]
    pub root: Option<PathBuf>,

    /// Log more (-vv: much more). The variable RAMPACK_LOG takes a filter instead.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[arg(help_heading = "In every command")]
    pub verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// What is wrong, or what was asked for: help, the version.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words)?;
        SwapOn::check(&matches, &mut command)?;
        Cli::from_arg_matches(&matches)
    }
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a compressed RAM disk that lasts until Ctrl-C.
    #[command(after_help = UP_EXAMPLES)]
    Up(Up),
    /// Run a daemon with any number of devices, for scripts and service managers.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Show the devices of a running daemon.
    #[command(after_help = columns::help(), visible_alias = "list")]
    Status(Status),
    /// Watch a running daemon on the terminal.
    #[command(after_help = TOP_NOTES)]
    Top(Top),
    /// Print what a running daemon counts, for Prometheus.
    #[command(after_help = METRICS_NOTES)]
    Metrics(Metrics),
    /// Add a device to a running daemon and print its name.
    Add(Add),
    /// Remove a device and everything stored in it.
    Remove(Device),
    /// Empty a device and free its memory. It can get a new size then.
    Reset(Device),
    /// Print attributes of a device.
    #[command(override_usage = GET_USAGE)]
    #[command(after_help = "Attributes have the kernel's names and formats \
        (admin-guide/blockdev/zram); --describe explains them.")]
    Get(Get),
    /// Change attributes of a device.
    #[command(after_help = "Example: rampack set zram0 comp_algorithm=zstd disksize=4G")]
    Set(Set),
    /// Write what a device has at this moment to standard output, while it is used.
    #[command(after_help = SNAPSHOT_NOTES)]
    Snapshot(Snapshot),
    /// Restore a device from a snapshot on standard input, and print its name.
    #[command(after_help = RESTORE_NOTES)]
    Restore(Restore),
    /// Make a device with what another one has at this moment, and print its name.
    #[command(after_help = CLONE_NOTES)]
    Clone(Cloning),
    /// List all attributes, with their places in the control tree.
    #[command(after_help = TREE_NOTES)]
    Tree(Tree),
    /// Run a command that sees the devices of a running daemon as the system's zram devices.
    #[command(after_help = EXEC_NOTES)]
    Exec(Exec),
    /// Add or remove swap space with a compressed cache in memory.
    #[command(after_help = SWAP_NOTES, subcommand_required = true, arg_required_else_help = true)]
    Swap(Swap),
    /// Check, show or import what is configured in files.
    #[command(after_help = CONFIG_NOTES)]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Config(Config),
    /// Tell how much memory running programs would free if they were compressed.
    #[command(after_help = ESTIMATE_NOTES)]
    Estimate(Estimate),
    /// Tell what this machine can do, why it cannot, and the commands that mend it.
    #[command(after_help = DOCTOR_NOTES)]
    Doctor(Doctor),
    /// Test on this machine that something works.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Selftest(Selftest),
    /// Have another program take the place of a running daemon, with its devices.
    #[command(after_help = UPGRADE_NOTES)]
    Upgrade(Upgrade),
    /// Check devices that outlive their daemon, and change nothing.
    #[command(after_help = FSCK_NOTES)]
    Fsck(Fsck),
    /// Print the layouts of kept devices that this program reads.
    #[command(hide = true)]
    Layouts,
    /// Print the names of devices and swap devices, for the completion of a shell.
    #[command(hide = true)]
    Names,
    /// Run a daemon whose devices outlive it: it is started again whenever it dies.
    #[command(after_help = KEEP_NOTES)]
    Keep(Keep),
    /// Stop a running daemon. Everything stored in its devices is lost.
    Stop(Stop),
}

const GET_USAGE: &str = "\
rampack get [OPTIONS] <NAME> <ATTRIBUTE>...
       rampack get [OPTIONS] <NAME> --all
       rampack get [OPTIONS] <NAME> --describe";

const UP_EXAMPLES: &str = "\
Examples:
  rampack up                                     1 GiB, as a block device or over NBD
  sudo rampack up --size 8G --mount /mnt/fast    with a file system, ready to use
  rampack up --size 4G --algorithm zstd --memory 1G

`rampack status` in another terminal shows the device. Its contents are lost when it ends.";

const SERVE_EXAMPLES: &str = "\
Examples:
  rampack serve --num-devices 4                  four devices without a size, like
                                                 `modprobe zram num_devices=4`
  nbdinfo -- [ rampack serve --size 64M --stdio ]
                                                 a daemon that its client starts

The daemon serves NBD on sockets that it gets from systemd (LISTEN_FDS). It then has a root \
directory only if --root or RAMPACK_ROOT names one.";

const KEEP_NOTES: &str = "\
What `serve`, `up` and `swap on` store outlives a daemon that is killed, crashes or panics. Its \
devices come back with every page, and whoever uses them sees a pause and no error: programs and \
file systems on block devices, swap space on them, swap devices, and NBD clients that connect \
again. A block device needs root and Linux 6.9 (a swap device by ublk Linux 6.4); before, its \
users get errors, and what is stored is there all the same. Pages that were written back encrypted \
come back where the kernel has secret memory (Linux 5.14). What `up --mount` has mounted stays \
mounted.

The memory of the devices, the mount of their files and the sockets stay with this process, which \
does little, so that it does not die. Its end is the end of all that. A daemon that ends by \
itself, or is told to (`rampack stop`, or SIGTERM, SIGINT or SIGQUIT, which are passed on to it), \
is not started again; its exit code is the exit code here. A terminal that is gone (SIGHUP) ends \
neither.

Under systemd no keeper is needed: a service with FileDescriptorStoreMax=, Restart=on-failure and \
RestartKillSignal=SIGUSR1 does the same.

Examples:
  sudo rampack keep serve --size 1G
  sudo rampack keep up --size 8G --mount /mnt/fast";

const UPGRADE_NOTES: &str = "\
For a daemon under `rampack keep`, or of a service with FileDescriptorStoreMax=: its devices \
outlive its process. The new program must read the layout of the devices' memory, or it is \
refused. The process stays: its number, its service manager, and what is stored. Clients of NBD \
get the answers to what they asked, are disconnected, and find the same exports when they connect \
again. Users of block devices wait (Linux 6.9; before, one in use refuses the upgrade). Swap \
devices stay, with what is swapped out; one that does not outlive its daemon refuses the upgrade. \
Whenever it is refused, the daemon goes on.

A service manager starts the program at the old path when the daemon dies later: put the new one \
there.

Example: install the new program over the old one, then `rampack upgrade`";

const DOCTOR_NOTES: &str = "\
It changes nothing and needs no root; what is told is for the user who asks. ok: as it should be. \
note: all that this user can have works, and could be better. problem: something fails here, or \
may when memory is out. Exit code 1 if there is a problem.

Example: rampack doctor --sysctl | sudo tee /etc/sysctl.d/90-rampack.conf && sudo sysctl --system";

const TREE_NOTES: &str = "\
With FUSE, the daemon shows the same tree as files under sys/ in its root directory: `cat \
ROOT/sys/block/zram0/mm_stat`, `echo 1G > ROOT/sys/block/zram0/disksize`. They behave like the \
kernel's files; docs/reference/zram.md lists the differences. ROOT/proc/buddyinfo shows rampack's \
page allocator, in the format of /proc/buddyinfo.";

const EXEC_NOTES: &str = "\
Needs root, because it makes a mount namespace for the command. In this namespace the daemon's \
devices are behind these paths:
  /sys/block/zramN, /sys/class/block/zramN, /sys/dev/block/MAJOR:MINOR
  /sys/class/zram-control/hot_add, hot_remove
  /sys/module/zram, /sys/module/zswap
  /sys/kernel/debug/zram, /sys/kernel/debug/zswap
  /dev/zramN                             a loop device under that name
  modprobe, rmmod, insmod of zram        make devices, and remove all that are not in use
  the line of zram in /proc/modules

The namespace hides the kernel's own zram devices. Everything else is the system's, with two \
limits: the command cannot make files in /dev itself, and its mounts end with it. The exit code is \
the command's; 126 if it cannot be run, 127 if it does not exist. The daemon does not stop while \
the command runs, except with `stop --force`.

Examples:
  rampack exec zramctl --find --size 1G --algorithm zstd
  rampack exec zramctl
  rampack exec -- sh -c 'mkfs.ext4 -q /dev/zram0 && mount /dev/zram0 /mnt && df /mnt'";

/// How a device is made.
#[derive(Args, Clone, Default, Debug)]
pub struct DeviceOptions {
    #[allow(missing_docs)]
    #[arg(long, short, value_name = "NAME", value_parser = algorithm, help = algorithm_help())]
    pub algorithm: Option<String>,

    /// The compression level, in the algorithm's own numbers; it may be negative.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = number(i32::MIN..=i32::MAX))]
    pub level: Option<i32>,

    /// The most memory that the device may use; 0 is no limit. At the limit, a write does what
    /// --when-full says.
    #[arg(long, value_name = "SIZE", value_parser = size, alias = "mem-limit")]
    pub memory: Option<Size>,

    /// What a write does at the memory limit: fail at once; wait while pages move to --backing,
    /// to the algorithm of --recompress-with or down the tiers of --auto, and fail when none can;
    /// or spill, that is go to --backing at once. Not for swap space [default: fail]
    #[arg(long, value_parser = ["fail", "wait", "spill"])]
    pub when_full: Option<String>,

    /// A block device or a file for pages that `set NAME writeback=…` writes back.
    #[arg(long, value_name = "PATH")]
    pub backing: Option<PathBuf>,

    /// Write pages back as they are. Otherwise they are encrypted, with a key that ends with the
    /// device, and checked when they are read.
    #[arg(long, requires = "backing")]
    pub plain_backing: bool,

    /// How pages lie on --backing: pages gives each a block of its own, as Linux does; log packs
    /// compressed pages one behind the other, which writes and takes less [default: pages]
    #[arg(long, value_name = "LAYOUT", requires = "backing")]
    pub backing_layout: Option<String>,

    /// A store that parts of the log which are not used go to: redis://HOST:PORT/DB,
    /// s3://BUCKET/PREFIX?region=…, fs:///DIRECTORY. Repeat it for more stores, and for how they
    /// are used: cold=SECONDS, copies=NUMBER, keep=SIZE, bandwidth=SIZE, requests=NUMBER (an
    /// hour), deadline=MILLISECONDS. Implies --backing-layout log. Only in a program that was built
    /// with `--features remote`
    #[arg(long, value_name = "URI|KEY=VALUE", requires = "backing")]
    pub remote: Vec<String>,

    /// A second algorithm, with which `set NAME recompress=…` compresses pages again.
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub recompress_with: Option<String>,

    /// Let pages that are not used move to smaller forms by themselves: zstd, or that of
    /// --recompress-with; one object for equal pages; then neighbours compressed as one [default:
    /// off]
    #[arg(long, value_name = "on|off", value_parser = one_of(SWITCH), hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub auto: Option<bool>,

    /// The memory that --auto aims at. Without it all pages move that are old enough.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "auto")]
    pub target: Option<Size>,

    /// The CPU time that --auto may take, in percent of one CPU [default: 5]
    #[arg(long, value_name = "PERCENT", requires = "auto", value_parser = number(1..=100_u32))]
    pub auto_cpu: Option<u32>,

    /// Let --auto move no page where one read in a hundred takes longer, in microseconds.
    #[arg(long, value_name = "US", requires = "auto", value_parser = number(0..=u32::MAX))]
    pub slowest_read: Option<u32>,

    /// Let --auto write pages that are not used for long to --backing, this many bytes a day. Meant
    /// for --backing-layout log [default: none]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "auto", requires = "backing")]
    pub auto_writeback: Option<Size>,

    /// Set an attribute before the device gets its size. May be repeated.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = assignment())]
    pub set: Vec<Attribute>,
}

/// How devices are reached.
#[derive(Args, Clone, Default, Debug)]
pub struct FrontendOptions {
    /// How programs reach the device.
    #[arg(long, value_parser = one_of(TRANSPORTS), default_value = "auto")]
    pub transport: Transport,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub nbd: NbdOptions,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub vhost: VhostOptions,

    /// Stop even while devices are in use: unmount them lazily instead of refusing. Write pages as
    /// they are (--plain-backing) even to a file that other users may open.
    #[arg(long)]
    pub force: bool,

    /// Lock the daemon's memory, so that no stored page is swapped out to a disk. Needs
    /// CAP_IPC_LOCK, or no limit on locked memory.
    #[arg(long)]
    pub lock_memory: bool,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub sandbox: SandboxOptions,
}

/// A disk and what is on it: for `rampack up` by itself, or among those of a configuration.
#[derive(Args, Clone, Debug)]
pub struct DiskOptions {
    /// The size of the device. Only written pages use memory.
    #[arg(long, short, value_name = "SIZE", default_value = "1G", value_parser = disk_size)]
    pub size: Size,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceOptions,

    /// Make a file system and mount it here. Without root the program fuse2fs mounts it.
    #[arg(long, short, value_name = "DIR")]
    pub mount: Option<PathBuf>,

    /// The file system to make: ext4, ext2, xfs, btrfs or f2fs [default with --mount: ext4].
    /// Without --mount it is not mounted. Without root there are ext4 and ext2.
    #[arg(long, value_name = "NAME", value_parser = fs_name)]
    pub fs: Option<String>,

    /// Restore the device from this file if it is there, and save it there when the daemon ends:
    /// it keeps its contents over a reboot. After a crash it has those of the last end.
    #[arg(long, value_name = "PATH")]
    pub snapshot: Option<PathBuf>,
}

/// `rampack up`.
#[derive(Args, Debug)]
pub struct Up {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub disk: DiskOptions,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub frontends: FrontendOptions,

    /// A command to run while DIR is mounted, after --. rampack ends with it, and has its exit
    /// code.
    #[arg(last = true, value_name = "COMMAND", requires = "mount")]
    pub command: Vec<OsString>,
}

/// `rampack serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// The number of devices at the start.
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = number(0..=1024_u32))]
    pub num_devices: u32,

    /// The size of each device. Without it they get a size by `rampack set NAME disksize=SIZE`.
    #[arg(long, short, value_name = "SIZE", value_parser = disk_size)]
    pub size: Option<Size>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceOptions,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub frontends: FrontendOptions,

    /// Serve NBD on standard input and output, and end with the connection. The size is 1G by
    /// default.
    #[arg(long, conflicts_with_all = ["num_devices", "transport", "nbd_tcp", "force"])]
    #[arg(conflicts_with_all = ["nbd_allow_uid", "VhostOptions"])]
    pub stdio: bool,

    /// Make and mount the disks of the configuration (`rampack config`), or of FILE alone
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with_all = ["num_devices", "size", "stdio", "transport", "force"])]
    #[arg(conflicts_with_all = ["lock_memory", "DeviceOptions", "NbdOptions", "VhostOptions"])]
    pub config: Option<Option<PathBuf>>,
}

/// `rampack keep`.
#[derive(Args, Debug)]
pub struct Keep {
    /// The command that is the daemon, serve, up or swap on, with its options.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// `rampack add`.
#[derive(Args, Debug)]
pub struct Add {
    /// The size of the device. Without it the device gets a size by `rampack set NAME
    /// disksize=SIZE`.
    #[arg(long, short, value_name = "SIZE", value_parser = disk_size)]
    pub size: Option<Size>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceOptions,
    /// Write pages as they are (--plain-backing) even to a file that other users may open.
    #[arg(long)]
    pub force: bool,
}

/// `rampack remove` and `rampack reset`.
#[derive(Args, Debug)]
pub struct Device {
    /// The device, such as zram0.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Unmount the device first, even if programs use it. Otherwise a device in use is refused.
    #[arg(long)]
    pub force: bool,
}

/// `rampack stop`.
#[derive(Args, Debug)]
pub struct Stop {
    /// Stop even while programs use devices. Otherwise a daemon with a device in use goes on.
    #[arg(long)]
    pub force: bool,
}

/// `rampack doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Print one JSON object: `can`, and `findings` with a name, level, text and command each.
    #[arg(long, short = 'J')]
    pub json: bool,
    /// Print a file for /etc/sysctl.d instead, with settings for swap space.
    #[arg(long, conflicts_with = "json")]
    pub sysctl: bool,
}

/// `rampack upgrade`.
#[derive(Args, Debug)]
pub struct Upgrade {
    /// The new program [default: what is now at the path of the daemon's program]
    #[arg(long, value_name = "BINARY")]
    pub to: Option<PathBuf>,
}

/// `rampack tree`.
#[derive(Args, Debug)]
pub struct Tree {
    /// Print one JSON array.
    #[arg(long, short = 'J')]
    pub json: bool,
    /// Print also the values that can be read without an effect.
    #[arg(long)]
    pub values: bool,
}

/// `rampack exec`.
#[derive(Args, Debug)]
pub struct Exec {
    /// The command and its arguments. Put -- before a command that begins with a dash.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// `rampack get`.
#[derive(Args, Debug)]
pub struct Get {
    /// The device, such as zram0, or the path of a directory that `rampack tree` shows.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The attributes. A single one is printed without its name.
    #[arg(value_name = "ATTRIBUTE", required_unless_present_any = ["all", "describe"])]
    pub attributes: Vec<String>,
    /// Print all attributes that can be read.
    #[arg(long, conflicts_with = "attributes")]
    pub all: bool,
    /// Explain the attributes instead of printing values.
    #[arg(long, conflicts_with_all = ["attributes", "all"])]
    pub describe: bool,
}

/// `rampack set`.
#[derive(Args, Debug)]
pub struct Set {
    /// The device, such as zram0, or the path of a directory that `rampack tree` shows.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// One ATTRIBUTE and its VALUE, or any number of ATTRIBUTE=VALUE, which are set in this order.
    #[arg(value_name = "ATTRIBUTE=VALUE", required = true, allow_hyphen_values = true)]
    pub assignments: Vec<OsString>,
}

impl Set {
    /// Attributes and values, in order.
    ///
    /// # Errors
    /// A message about an argument that has neither form.
    pub fn attributes(&self) -> Result<Vec<Attribute>, ControlError> {
        match &self.assignments[..] {
            [name, value] if !name.as_bytes().contains(&b'=') => {
                return Ok(vec![attribute(name.as_bytes(), value.as_bytes())?]);
            }
            _ => {}
        }
        let pair = |text: &OsString| {
            assigned(text)?.ok_or_else(|| {
                ControlError::invalid(format!(
                    "{text:?} is not ATTRIBUTE=VALUE; write `rampack set NAME ATTRIBUTE VALUE` or \
                     `rampack set NAME ATTRIBUTE=VALUE…`"
                ))
            })
        };
        self.assignments.iter().map(pair).collect()
    }
}

#[cfg(test)]
mod tests;
