//! The options of `rampack-lab backing`.

use std::path::PathBuf;

use clap::Args;

use super::sizes::{swap_size, within};

/// `rampack-lab backing`.
#[derive(Args)]
pub struct BackingArgs {
    /// A directory on the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,

    /// Bytes of the file, all of which are written first
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = swap_size)]
    pub size: u64,

    /// How long each turn takes
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = within(1..=600_000))]
    pub milliseconds: u32,

    /// Rounds; medians and spreads are printed
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = within(1..=1000))]
    pub repeat: u32,
}
