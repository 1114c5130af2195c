//! The options of `rampack-lab writeback`.

use std::path::PathBuf;

use clap::Args;

use super::sizes::within;

/// `rampack-lab writeback`.
#[derive(Args)]
pub struct WritebackArgs {
    /// Page dumps that `corpus` has made, or any other files
    #[arg(long, value_name = "FILE", num_args = 1.., value_delimiter = ',', required = true)]
    pub corpus: Vec<PathBuf>,

    /// A directory on the disk that is written
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,

    /// The codec of the pages
    #[arg(long, value_name = "NAME", default_value = "zstd")]
    pub algorithm: String,

    /// Pages of the disk; the pages of a dump are repeated
    #[arg(long, value_name = "N", default_value_t = 102_400)]
    #[arg(value_parser = within(64..=16_777_216))]
    pub pages: u32,

    /// Write pages as they are, neither encrypted nor authenticated
    #[arg(long)]
    pub plain: bool,

    /// How full the log is while pages are replaced, in percent of its bytes
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "50,80,90")]
    #[arg(value_parser = within(1..=95))]
    pub full: Vec<u32>,

    /// Rounds; medians and spreads are printed
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = within(1..=1000))]
    pub repeat: u32,

    /// What is drawn at random
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}
