//! The arguments of `upgrade`.

use std::path::PathBuf;

use clap::Args;

use super::sizes::export_size;

/// `rampack-lab upgrade`.
#[derive(Args)]
pub struct UpgradeArgs {
    /// How much is stored when the daemon is upgraded, with commas between sizes
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "1G,4G,8G")]
    #[arg(value_parser = export_size)]
    pub stored: Vec<u64>,

    /// How long the load runs before and after an upgrade
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(50..=60_000))]
    pub milliseconds: u32,

    /// The program rampack [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    pub rampack: Option<PathBuf>,

    /// The program that takes its place [default: the same]
    #[arg(long, value_name = "PATH")]
    pub to: Option<PathBuf>,

    /// Upgrades one after another; medians are printed
    #[arg(long, value_name = "R", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
