//! The options of `density` and `values`.

use std::path::PathBuf;

use clap::Args;

use super::sizes::within;

/// `rampack-lab density`.
#[derive(Args)]
pub struct DensityArgs {
    /// Page dumps that `corpus` has made, or any other files
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',', required = true)]
    pub corpus: Vec<PathBuf>,

    /// How many of the pages are not used any more, in percent
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,25,50,75,100")]
    #[arg(value_parser = within(0..=100))]
    pub idle: Vec<u32>,

    /// How pages are stored at first
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    pub algorithm: String,

    /// A zram device of the kernel, for comparison; all on it is lost. It is reset at the end
    #[arg(long, value_name = "DEVICE")]
    pub kernel: Option<PathBuf>,

    /// The algorithms of the kernel's device
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lzo-rle,lz4")]
    pub kernel_algorithms: Vec<String>,

    /// The CPU time that pages may take to move, in percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = within(1..=100))]
    pub cpu: u32,

    /// Use only the first pages of each dump
    #[arg(long, value_name = "N", value_parser = within(64..))]
    pub pages: Option<u32>,

    /// Measure the cache of swap areas in place of a disk: pages are stored, then recompressed
    #[arg(long, conflicts_with_all = ["algorithm", "idle", "kernel"])]
    pub swap: bool,
}

/// `rampack-lab values`.
#[derive(Args)]
pub struct ValuesArgs {
    /// Page dumps that `corpus` has made, or any other files, to be cut in values
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',')]
    pub corpus: Vec<PathBuf>,

    /// Use only the first pages of each dump
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = within(64..))]
    pub pages: u32,

    /// The sizes of these values, in KiB: 4, 8, 16, 32 or 64
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4,16,64")]
    #[arg(value_parser = within(4..=64))]
    pub kib: Vec<u32>,

    /// How many records, of 150 bytes to 2 KiB, make one more set
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = within(0..=10_000_000))]
    pub records: u32,

    /// The codecs
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lz4,zstd")]
    pub algorithms: Vec<String>,

    /// Only these: rampack, one-by-one (the store, small values not together), map (one with locks
    /// for parts of it), moka, foyer
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub subjects: Vec<String>,

    /// Rounds, in which all take turns; medians and spreads are printed
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = within(1..=1000))]
    pub repeat: u32,
}
