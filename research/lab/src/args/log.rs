//! The arguments of `log`.

use std::path::PathBuf;

use clap::Args;

use crate::density::Ages;

/// `rampack-lab log`.
#[derive(Args)]
pub struct LogArgs {
    /// Page dumps that `corpus` has made, or any other files
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',', required = true)]
    pub corpus: Vec<PathBuf>,

    /// How full the device is at most, in percent of its bytes
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "50,80,90")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=95))]
    pub full: Vec<u32>,

    /// How pages age: used by rank, in sweeps over all, or in phases
    #[arg(long, value_name = "KIND", value_delimiter = ',', default_value = "zipf,sweeps,phases")]
    pub ages: Vec<Ages>,

    /// The codec of the pages
    #[arg(long, value_name = "NAME", default_value = "zstd")]
    pub algorithm: String,

    /// Pages of the disk; the pages of a dump are repeated
    #[arg(long, value_name = "N", default_value_t = 262_144)]
    #[arg(value_parser = clap::value_parser!(u32).range(1024..=16_777_216))]
    pub pages: u32,

    /// A page that was not used for this long is written back, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub idle: u32,

    /// How long pages age. The second half counts
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    #[arg(value_parser = clap::value_parser!(u32).range(64..=86_400))]
    pub seconds: u32,

    /// Bytes of a segment, in MiB: 1, 2 or 4
    #[arg(long, value_name = "MIB", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4))]
    pub segment: u32,

    /// What is drawn at random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Draw the bytes that are written for each byte of an object
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}
