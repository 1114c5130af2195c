//! The command line of `rampack-lab`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};

use crate::drive::modes::Kind;

mod devices;
mod figures;
mod sizes;
mod zones;

pub use devices::{DensityArgs, ValuesArgs};
pub use figures::FiguresArgs;
pub use sizes::name_of;
use sizes::{export_size, request_size, size, swap_size, thread_size, within};
pub use zones::{ZoneArgs, ZoneSimArgs};

/// Measures rampack beside its peers, on memory of live programs.
#[derive(Parser)]
#[command(name = "rampack-lab", version, about)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Print one JSON object
    #[arg(long, global = true)]
    pub json: bool,

    /// Draw the result. Of several pictures the second is FILE.2.svg
    #[arg(long, global = true, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Dump memory of live programs, for `pages` to work on
    Corpus(CorpusArgs),
    /// Run every measurement of docs/measuring/figures.md, and make a page of tables and pictures
    #[command(visible_alias = "report")]
    Figures(FiguresArgs),
    /// Store and load pages, in the engine or on a device, beside the bare codec
    Pages(PagesArgs),
    /// Compare the schemes that guard slots, as when zram's table lock was split in 2014
    Locks(LocksArgs),
    /// Compare the ways threads come by a stream, as when zram got several of them in 2014
    Streams(StreamsArgs),
    /// Simulate threads that want the same slots, on more CPUs than there are
    LocksSim(LocksSimArgs),
    /// Compare the indexes of zswap, one tree and split ones, as was debated in 2024
    Index(IndexArgs),
    /// Compare the designs of page allocators, as was debated in 2018: locks, fragmentation
    Zone(ZoneArgs),
    /// Simulate threads that want the same zone, on more CPUs than there are
    ZoneSim(ZoneSimArgs),
    /// Store dumps, let pages age, and see how much data a byte of memory holds
    Density(DensityArgs),
    /// Put and get values by keys, in `rampack::Store` and in caches of blocks of the same codec
    Values(ValuesArgs),
    /// Put NBD servers under the same loads: ours, nbdkit's and qemu's
    Nbd(NbdArgs),
    /// Build the kernel in a cgroup with less memory than it wants, with several kinds of swap
    KernelBuild(KernelBuildArgs),
}

impl Command {
    /// Whether it has swap on at times, or mounts, which must be taken away before this process
    /// ends.
    pub fn is_patient(&self) -> bool {
        matches!(self, Command::KernelBuild(_))
    }
}

/// `rampack-lab kernel-build`, which needs root.
#[derive(Args)]
pub struct KernelBuildArgs {
    /// Kinds of swap, with commas between them: `file` (on a disk), `kernel-zswap` (the same file
    /// behind zswap), `kernel-zram`, `rampack` (ours, with the same file behind it),
    /// `zswap+rampack` (that behind zswap), `none` (no limit either), or `all`. A codec may follow
    /// a colon: kernel-zswap:lzo, kernel-zram:lz4, rampack:zstd. `design:INDEX` or
    /// `design:INDEX+CODEC` is our cache with an index of an experiment
    #[arg(long, value_name = "KIND[:VARIANT]", value_delimiter = ',', default_value = "all")]
    pub swap: Vec<String>,

    /// How much swap there is
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = swap_size)]
    pub swap_size: u64,

    /// Memory that compressed pages may take, for zswap (rounded up to whole percents of all
    /// memory) and ours [default: what each has without being told]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_pool: Option<u64>,

    /// A directory on a disk, for swap and for files
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,

    /// Seconds after which a program is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = within(1..=86_400))]
    pub timeout: u32,

    /// The program rampack [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub rampack: Option<PathBuf>,

    /// Go on although other swap is on
    #[arg(long)]
    pub force: bool,

    /// Numbers of jobs (make -j), with commas between them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8")]
    #[arg(value_parser = within(1..=1024))]
    pub jobs: Vec<u32>,

    /// Memory for each number of jobs in turn; the last is for all that follow
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "256M")]
    #[arg(value_parser = size)]
    pub limit: Vec<u64>,

    /// The source [default: the last linux-source tree in the directory or in /usr/src]. Any tree
    /// will do whose Makefile has a target `clean`; one of the kernel without .config gets a
    /// tinyconfig
    #[arg(long, value_name = "PATH")]
    pub source: Option<PathBuf>,

    /// How often everything is done, with the order of kinds moved on by one; medians are printed
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = within(1..=100))]
    pub repeat: u32,
}

/// `rampack-lab corpus`.
#[derive(Args)]
pub struct CorpusArgs {
    /// The directory to write to; made if missing. Dumps of the same programs are replaced
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Pages of 4 KiB to take of each program
    #[arg(long, value_name = "N", default_value_t = 25_600, value_parser = within(1..=4_194_304))]
    pub pages: u32,

    /// Only these programs: python, node, java, redis
    #[arg(long = "program", value_name = "NAME", num_args = 1..)]
    pub programs: Vec<String>,

    /// Write made pages to half.pages, and no dump: half of each is noise, half zeroes
    #[arg(long, conflicts_with = "programs")]
    pub half: bool,
}

/// `rampack-lab pages`.
#[derive(Args)]
pub struct PagesArgs {
    /// The pages: any file, best one that `corpus` has made. What is over a multiple of 4096 bytes
    /// is left out
    #[arg(long, value_name = "FILE")]
    pub corpus: PathBuf,

    /// A block device (or a file) to store to, in place of the engine in this process. ITS CONTENTS
    /// ARE LOST. Refused while it is in use
    #[arg(long, value_name = "PATH")]
    pub device: Option<String>,

    /// Another device, or `engine`, or `engine:NAME` for one with that slot scheme, or `zone:NAME`
    /// for one on that page allocator, or `memory:NAME` for one in that kind of memory (memfd,
    /// noswap), or `swap` or `swap:NAME` for the cache of swap pages with that index, to take
    /// turns with the first. May be repeated
    #[arg(long, value_name = "PATH")]
    pub compare: Vec<String>,

    /// Threads, each on a CPU of its own as far as there are enough
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1..=1024))]
    pub threads: u32,

    /// The codec, by the kernel's name: lz4, lzo-rle, zstd and so on. A zram device of the kernel
    /// tells its own [default: lz4]
    #[arg(long, value_name = "A")]
    pub algorithm: Option<String>,

    /// Rounds; medians are printed
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = within(1..=1000))]
    pub repeat: u32,

    /// Let the first store put another page into each place, so that overwriting changes the size
    /// of every object
    #[arg(long)]
    pub churn: bool,

    /// How much a request stores or loads: 4K, 8K, 16K and so on up to 256K
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = request_size)]
    pub request: u64,

    /// Set up the /dev/zramN that takes part with this algorithm, and reset it in the end. Refused
    /// when it is set up already
    #[arg(long, value_name = "ALGORITHM")]
    pub setup_kernel_zram: Option<String>,
}

/// `rampack-lab nbd`.
#[derive(Args)]
pub struct NbdArgs {
    /// The program rampack [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub rampack: Option<PathBuf>,

    /// How much each server holds; all of it is written first
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = export_size)]
    pub size: u64,

    /// How long each measurement takes
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = within(50..=3_600_000))]
    pub milliseconds: u32,

    /// Rounds; medians are printed
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = within(1..=1000))]
    pub repeat: u32,
}

/// What `locks` and `streams` share.
#[derive(Args)]
pub struct DriveArgs {
    /// What is done
    #[arg(long, value_enum, default_value = "modes")]
    pub workload: Kind,

    /// Numbers of threads, each on a CPU; where there are more threads than CPUs, they share them
    /// [default: 1,2 for locks, 2,3 for streams]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = within(1..=1024))]
    pub threads: Vec<u32>,

    /// What is written: `iozone` (nearly empty pages, as iozone writes them), `half` (half noise,
    /// half zeroes), `random` (noise, as fio writes when it is told nothing else), `filled` (pages
    /// of one byte each), or a file of pages, best one that `corpus` has made
    #[arg(long, value_name = "NAME|FILE", default_value = "iozone")]
    pub content: String,

    /// Take the pages of the file in another order, the same each time
    #[arg(long)]
    pub shuffle: bool,

    /// Let this zram device of the kernel take part, through its block device in any case. It is
    /// set up for every turn and reset afterwards: ITS CONTENTS ARE LOST. Refused when it is set up
    /// already
    #[arg(long, value_name = "DEVICE", num_args = 0..=1, default_missing_value = "/dev/zram0")]
    pub kernel: Option<PathBuf>,

    /// The codec, by the kernel's name
    #[arg(long, value_name = "A", default_value = zcomp::DEFAULT_ALGORITHM)]
    pub algorithm: String,

    /// Bytes of each thread in the workload `modes`: a multiple of 16K [default: 200M for locks,
    /// 60M for streams]
    #[arg(long, value_name = "SIZE", value_parser = thread_size)]
    pub size: Option<u64>,

    /// Loops of each job in the workload `fio`
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = within(1..=1_000_000))]
    pub loops: u32,

    /// Pages each thread stores or loads in each mode of the workload `eight`, rounded up to a
    /// multiple of 4096 if more than that
    #[arg(long, value_name = "N", default_value_t = 409_600)]
    #[arg(value_parser = within(1..=1_000_000_000))]
    pub operations: u32,

    /// How often everything is done, with the order of subjects moved on by one
    #[arg(long, value_name = "R", default_value_t = 10, value_parser = within(1..=1000))]
    pub repeat: u32,
}

/// `rampack-lab locks`.
#[derive(Args)]
pub struct LocksArgs {
    #[command(flatten)]
    pub drive: DriveArgs,

    /// Only these slot schemes. The first is what the others are compared with [default: all, with
    /// global-rwlock first]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub schemes: Vec<String>,
}

/// `rampack-lab streams`.
#[derive(Args)]
pub struct StreamsArgs {
    #[command(flatten)]
    pub drive: DriveArgs,

    /// Only these policies, with a number of streams after a colon if one is wanted, or `N` for as
    /// many as there are threads. The first is what the others are compared with
    #[arg(long, value_name = "NAME[:STREAMS]", value_delimiter = ',')]
    #[arg(default_value = "mutex,single,multi:1,multi:N,percpu")]
    pub policies: Vec<String>,
}

/// `rampack-lab locks-sim`.
#[derive(Args)]
pub struct LocksSimArgs {
    /// The pages: any file, best one that `corpus` has made
    #[arg(long, value_name = "FILE")]
    pub corpus: PathBuf,

    /// Threads to simulate, each on a CPU of its own
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [4, 16, 112])]
    #[arg(value_parser = within(1..=128))]
    pub threads: Vec<u32>,

    /// What the simulation draws its random numbers from; the same seed and the same measurements
    /// give the same result
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// How long each situation is measured on one thread, and on two, over all rounds
    #[arg(long, value_name = "MS", default_value_t = 25, value_parser = within(1..=600_000))]
    pub milliseconds: u32,

    /// Rounds; medians count. Short turns are disturbed less often
    #[arg(long, value_name = "R", default_value_t = 31, value_parser = within(1..=1000))]
    pub repeat: u32,

    /// Operations that each situation is simulated for
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = within(100..=100_000_000))]
    pub operations: u32,
}

/// `rampack-lab index`.
#[derive(Args)]
pub struct IndexArgs {
    /// Only these: rbtree, rbtree-split, xarray, xarray-split, flat
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub variants: Vec<String>,

    /// Threads, each on a CPU of its own [default: 1 to as many as there are CPUs]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = within(1..=128))]
    pub threads: Vec<u32>,

    /// Pages of the swap area; half of them have an entry
    #[arg(long, value_name = "N", default_value_t = 1 << 18, value_parser = within(1024..=1 << 24))]
    pub pages: u32,

    /// How long each situation is measured, over all rounds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = within(1..=600_000))]
    pub milliseconds: u32,

    /// Rounds; medians count
    #[arg(long, value_name = "R", default_value_t = 15, value_parser = within(1..=1000))]
    pub repeat: u32,

    /// Call the whole engine, compression and all, instead of the index alone
    #[arg(long)]
    pub whole: bool,
}

/// The names that an option gives: each once, each one of `all`. All, if there are none.
pub fn chosen(
    option: &str,
    names: &[String],
    all: &[&'static str],
) -> anyhow::Result<Vec<&'static str>> {
    let mut found = Vec::new();
    for name in names {
        let Some(known) = all.iter().find(|known| *known == name) else {
            bail!("{option} {name}: it is not known; there are: {}", all.join(", "));
        };
        if found.contains(known) {
            bail!("{option} {name}: it takes part already");
        }
        found.push(*known);
    }
    Ok(if names.is_empty() { all.to_vec() } else { found })
}

/// The numbers of threads that an option gives, each once and no more than there are CPUs; 1 to
/// `usual`, if there are none.
pub fn threads(asked: &[u32], cpus: usize, usual: usize) -> anyhow::Result<Vec<usize>> {
    let mut threads: Vec<usize> = Vec::new();
    for n in asked.iter().map(|n| *n as usize) {
        if n > cpus {
            bail!(
                "--threads {n}: there are {cpus} CPUs, and threads that share one measure the \
                 scheduler; `zone-sim` and `locks-sim` simulate more"
            );
        }
        if threads.contains(&n) {
            bail!("--threads {n}: it is there already");
        }
        threads.push(n);
    }
    Ok(if asked.is_empty() { (1..=usual).collect() } else { threads })
}
