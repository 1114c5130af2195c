//! The options of `rampack estimate`.

use std::path::PathBuf;

use clap::Args;
use estimate::Codec;

use super::values::{Size, disk_size, number};

pub(super) const ESTIMATE_NOTES: &str = "\
A process goes on while its pages are read, and pages that are swapped out stay out. What counts \
is memory that swap can take: private pages, and shared memory. Files count if you name them: core \
dumps, images of a guest's memory, or any file.

A random sample is read. `±` is how far the truth may be from the estimate, 95 times of 100. ALL \
counts pages that processes share once, where root asks (/proc/PID/pagemap). SAME is the part of \
the pages that is the same eight bytes over and over, which take no memory; DUPL the part that \
occurs again in the sample: with an algorithm, each of them takes memory all the same.

WARM and COLD tell what the same pages take on a disk with `--auto` once all are idle. There equal \
pages share one object; warm pages are compressed with zstd, of cold ones up to four neighbours \
as one. Neighbours are those by address or by place in the file, in the hope that they become \
neighbours on the disk, too. Equal pages share if they are of one process and both in the sample: \
a smaller sample finds fewer, which `±` does not know. COMPRESS and DECOMPRESS are the mean for a \
page; in the tier cold, to pack it and to read it alone.

Another process can be read by root, or by whoever may trace it (ptrace(2)).

Examples:
  sudo rampack estimate --all
  rampack estimate --pid 4711,4712 --algorithm lz4,zstd:9
  sudo rampack estimate --cgroup system.slice/mysql.service --svg mysql.svg
  rampack estimate core.4711";

/// `rampack estimate`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct Estimate {
    /// Processes, separated by commas.
    #[arg(long, short, value_name = "PID", value_delimiter = ',', group = "what")]
    #[arg(value_parser = number(1..=i32::MAX))]
    pub pid: Vec<i32>,

    /// All processes that may be read.
    #[arg(long, group = "what")]
    pub all: bool,

    /// The processes of a control group and of those below it. May be repeated.
    #[arg(long, value_name = "GROUP", group = "what")]
    pub cgroup: Vec<PathBuf>,

    /// Core dumps, and other files with pages.
    #[arg(value_name = "FILE", group = "what")]
    pub files: Vec<PathBuf>,

    /// Algorithms to compare, separated by commas; `zstd:9` is zstd at level 9. The first is that
    /// of hot pages.
    #[arg(long, short, value_name = "NAMES", value_delimiter = ',', default_value = "lz4,zstd")]
    #[arg(value_parser = codec)]
    pub algorithm: Vec<Codec>,

    /// Read about so much in all, and 4M of each process at least. 1E reads everything.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = disk_size)]
    pub sample: Size,

    /// Choose the sample by this number, for the same one again [default: another each time]
    #[arg(long, value_name = "N", value_parser = number(0..=u64::MAX))]
    pub seed: Option<u64>,

    /// Print one JSON object.
    #[arg(long, short = 'J')]
    pub json: bool,

    /// Draw the estimate into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

fn codec(text: &str) -> Result<Codec, String> {
    Codec::parse(text).map_err(|error| format!("{error} (EINVAL)"))
}
