//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::columns;
use crate::protocol::Attribute;
pub use crate::transport::{SwapTransport, Transport};

mod nbd;
mod swap;
mod values;
pub use nbd::NbdOptions;
use swap::SWAP_NOTES;
pub use swap::{
    Hungry, Selftest, SelftestOf, SelftestSwap, Swap, SwapAction, SwapOff, SwapOn, SwapoffHelper,
};
pub use values::{ColumnNames, Size};
use values::{algorithm, algorithm_help, assignment, column_names, disk_size, fs_name, size};

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 refused or failed (the message says why and ends in the error's symbol), \
2 the command line was wrong.

Sizes are bytes, with an optional suffix K M G T P E (times 1024 each).";

/// A compressed RAM disk: what you write there is kept in memory, compressed.
#[derive(Parser, Debug)]
#[command(name = "rampack", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// The daemon's directory, with its sockets, files and links to devices; it is made if it is
    /// missing, and otherwise empty at first [default: /run/rampack for root, else
    /// $XDG_RUNTIME_DIR/rampack]
    #[arg(long, global = true, env = "RAMPACK_ROOT", value_name = "DIR", hide_env_values = true)]
    #[arg(help_heading = "In every command")]
    pub root: Option<PathBuf>,

    /// Say more of what is going on (-vv: much more); RAMPACK_LOG takes a filter instead.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[arg(help_heading = "In every command")]
    pub verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a compressed RAM disk, and keep it until Ctrl-C.
    #[command(after_help = UP_EXAMPLES)]
    Up(Up),
    /// Run a daemon with any number of devices, for scripts and service managers.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Show the devices of a running daemon.
    #[command(after_help = columns::help(), visible_alias = "list")]
    Status(Status),
    /// Give a running daemon another device; prints its name.
    Add(Add),
    /// Take a device away, with everything stored in it.
    Remove(Device),
    /// Empty a device and give back its memory; it can be given a new size then.
    Reset(Device),
    /// Print attributes of a device.
    #[command(after_help = "Attributes have the kernel's names and formats \
        (admin-guide/blockdev/zram); --describe explains them.")]
    Get(Get),
    /// Change attributes of a device.
    #[command(after_help = "Example: rampack set zram0 comp_algorithm=zstd disksize=4G")]
    Set(Set),
    /// List every attribute there is, with its place in the control tree.
    #[command(after_help = TREE_NOTES)]
    Tree(Tree),
    /// Run a command for which the devices of a running daemon are the system's zram.
    #[command(after_help = EXEC_NOTES)]
    Exec(Exec),
    /// Swap space with a compressed cache in front of it, for every program on the machine.
    #[command(after_help = SWAP_NOTES, subcommand_required = true, arg_required_else_help = true)]
    Swap(Swap),
    /// Prove on this machine, with a program of its own, that something works.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Selftest(Selftest),
    /// What a daemon starts to swap off.
    #[command(hide = true)]
    SwapoffHelper(SwapoffHelper),
    /// End a running daemon; everything stored in its devices is lost.
    Stop(Stop),
}

const UP_EXAMPLES: &str = "\
Examples:
  rampack up                                     a 1 GiB device, as block device or over NBD
  sudo rampack up --size 8G --mount /mnt/fast    with a file system, ready to use
  rampack up --size 4G --algorithm zstd --mem-limit 1G

While it runs, `rampack status` shows it in another terminal. When it ends, all in it is lost.";

const SERVE_EXAMPLES: &str = "\
Examples:
  rampack serve --num-devices 4                four devices without a size, as `modprobe zram`
  nbdinfo -- [ rampack serve --size 64M --stdio ]
                                                 started by the client that uses it

With sockets handed over by systemd (LISTEN_FDS), NBD is served on them; the daemon then keeps a \
root directory only if --root or RAMPACK_ROOT names one.";

const TREE_NOTES: &str = "\
The daemon has the same tree as files in its root directory, under sys/, where FUSE is there: \
`cat ROOT/sys/block/zram0/mm_stat`, `echo 1G > ROOT/sys/block/zram0/disksize`. They behave as the \
kernel's do; docs/compatibility.md lists the differences. ROOT/proc/buddyinfo tells of rampack's \
page allocator what /proc/buddyinfo does of the kernel's.";

const EXEC_NOTES: &str = "\
Needs root: it makes a mount namespace for the command. Within it, and nowhere else, these are \
those of the daemon:
  /sys/block/zramN, /sys/class/block/zramN, /sys/dev/block/MAJOR:MINOR
  /sys/class/zram-control/hot_add, hot_remove
  /sys/module/zram, /sys/module/zswap
  /sys/kernel/debug/zram, /sys/kernel/debug/zswap
  /dev/zramN                             a loop device under that name

Zram devices of the kernel are not to be seen there. All else is the system's own, but no files \
can be made in /dev itself, and what the command mounts is seen by it alone and goes with it. The \
exit code is the command's; 126 when it cannot be run, 127 when there is none. The daemon does not \
stop while the command runs, unless it is forced to.

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

    /// How hard to compress, in the algorithm's own terms; may be negative.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub level: Option<i32>,

    /// The most memory it may take; writes fail when it is reached. 0 is no limit.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub mem_limit: Option<Size>,

    /// A block device or a file to write pages back to, when `writeback` is written.
    #[arg(long, value_name = "PATH")]
    pub backing: Option<PathBuf>,

    /// Write pages back as they are. Otherwise they are encrypted, with a key that ends with the
    /// device, and checked when they are read.
    #[arg(long, requires = "backing")]
    pub plain_backing: bool,

    /// A second algorithm, for pages that are compressed again when `recompress` is written.
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub recompress_with: Option<String>,

    /// Write an attribute before it gets its size; may be given several times.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = assignment)]
    pub set: Vec<Attribute>,
}

/// How devices are reached.
#[derive(Args, Clone, Debug)]
pub struct FrontendOptions {
    /// How programs reach the device.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: Transport,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub nbd: NbdOptions,

    /// When told to stop, take devices from their users (lazy unmount) instead of refusing.
    #[arg(long)]
    pub force: bool,

    /// Lock the daemon's memory: nothing that is stored there is swapped out to a disk. Needs
    /// CAP_IPC_LOCK, or no limit on locked memory.
    #[arg(long)]
    pub lock_memory: bool,
}

/// `rampack up`.
#[derive(Args, Debug)]
pub struct Up {
    /// How much the device holds; it takes memory only for what is written.
    #[arg(long, short, value_name = "SIZE", default_value = "1G", value_parser = disk_size)]
    pub size: Size,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceOptions,

    /// Make a file system and mount it here. Needs root.
    #[arg(long, short, value_name = "DIR")]
    pub mount: Option<PathBuf>,

    /// The file system to make: ext4, ext2, xfs, btrfs or f2fs [default with --mount: ext4]
    #[arg(long, value_name = "NAME", value_parser = fs_name)]
    pub fs: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub frontends: FrontendOptions,
}

/// `rampack serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// How many devices there are at first.
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub num_devices: u32,

    /// What each of them holds; without it they have no size until `rampack set NAME disksize`.
    #[arg(long, short, value_name = "SIZE", value_parser = disk_size)]
    pub size: Option<Size>,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceOptions,

    #[command(flatten)]
    #[allow(missing_docs)]
    pub frontends: FrontendOptions,

    /// Serve NBD on standard input and output, and end with the connection. Size 1G if not given.
    #[arg(long, conflicts_with_all = ["num_devices", "transport", "nbd_tcp", "force"])]
    #[arg(conflicts_with = "nbd_allow_uid")]
    pub stdio: bool,
}

/// `rampack status`.
#[derive(Args, Debug)]
pub struct Status {
    /// Only these devices.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// As one JSON object.
    #[arg(long, short = 'J')]
    pub json: bool,
    /// Sizes in bytes.
    #[arg(long, short)]
    pub bytes: bool,
    /// One space between columns, `-` for an empty one.
    #[arg(long, short, conflicts_with = "json")]
    pub raw: bool,
    /// Without the line of names.
    #[arg(long, short, conflicts_with = "json")]
    pub noheadings: bool,
    /// Only these columns, separated by commas.
    #[arg(long, short, value_name = "COLUMNS", value_parser = column_names)]
    pub output: Option<ColumnNames>,
}

/// `rampack add`.
#[derive(Args, Debug)]
pub struct Add {
    /// How much it holds; without it, it has no size until `rampack set NAME disksize`.
    #[arg(long, short, value_name = "SIZE", value_parser = disk_size)]
    pub size: Option<Size>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceOptions,
}

/// `rampack remove` and `rampack reset`.
#[derive(Args, Debug)]
pub struct Device {
    /// The device, such as zram0.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Unmount it first, from under those who use it; without, a device in use is refused.
    #[arg(long)]
    pub force: bool,
}

/// `rampack stop`.
#[derive(Args, Debug)]
pub struct Stop {
    /// Take devices from those who use them; without, a daemon with a device in use is left alone.
    #[arg(long)]
    pub force: bool,
}

/// `rampack tree`.
#[derive(Args, Debug)]
pub struct Tree {
    /// As one JSON array.
    #[arg(long, short = 'J')]
    pub json: bool,
    /// With the values of what can be read without an effect.
    #[arg(long)]
    pub values: bool,
}

/// `rampack exec`.
#[derive(Args, Debug)]
pub struct Exec {
    /// The command and its arguments; begin with -- if they begin with a dash.
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
    /// The attributes; one alone is printed without its name.
    #[arg(value_name = "ATTRIBUTE", required_unless_present_any = ["all", "describe"])]
    pub attributes: Vec<String>,
    /// All that can be read.
    #[arg(long, conflicts_with = "attributes")]
    pub all: bool,
    /// What attributes there are and what they mean, instead of values.
    #[arg(long, conflicts_with_all = ["attributes", "all"])]
    pub describe: bool,
}

/// `rampack set`.
#[derive(Args, Debug)]
pub struct Set {
    /// The device, such as zram0, or the path of a directory that `rampack tree` shows.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Either one ATTRIBUTE and its VALUE, or any number of ATTRIBUTE=VALUE, set in this order.
    #[arg(value_name = "ATTRIBUTE=VALUE", required = true, allow_hyphen_values = true)]
    pub assignments: Vec<String>,
}

impl Set {
    /// Attributes and values, in order.
    ///
    /// # Errors
    /// A message about an argument that has neither form.
    pub fn pairs(&self) -> Result<Vec<(String, String)>, String> {
        match &self.assignments[..] {
            [attribute, value] if !attribute.contains('=') => {
                return Ok(vec![(attribute.clone(), value.clone())]);
            }
            _ => {}
        }
        let pair = |text: &String| match text.split_once('=') {
            Some((attribute, value)) if !attribute.is_empty() => {
                Ok((attribute.to_string(), value.to_string()))
            }
            _ => Err(format!(
                "{text:?} is not ATTRIBUTE=VALUE; write `rampack set NAME ATTRIBUTE VALUE` or \
                 `rampack set NAME ATTRIBUTE=VALUE…`"
            )),
        };
        self.assignments.iter().map(pair).collect()
    }
}

#[cfg(test)]
mod tests;
