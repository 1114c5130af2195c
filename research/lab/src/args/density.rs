//! The arguments of `density`.

use std::path::PathBuf;

use clap::Args;

use super::sizes::within;

use crate::density::Ages;

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

    /// Also run with pages that age: used by rank, in sweeps over all, or in phases
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub ages: Vec<Ages>,

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
    #[arg(long, conflicts_with_all = ["algorithm", "idle", "ages", "kernel"])]
    pub swap: bool,

    /// What is drawn at random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}
