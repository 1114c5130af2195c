//! The command line of `rampack-soak`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::soak::Transport;

/// Long tests of the product: each page is compared.
#[derive(Parser)]
#[command(name = "rampack-soak", version, about)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Do a great many operations on pages over all transports, beside faults and kills
    Run(SoakArgs),
    /// Upgrade a daemon in place under load, and tell how long its clients wait
    Upgrade(UpgradeArgs),
}

/// `rampack-soak run`.
#[derive(Args)]
pub struct SoakArgs {
    /// Operations on pages of 4 KiB: written, discarded, or read and compared
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: u64,

    /// Ways to the pages, with commas between them [default: all that this machine has]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub transports: Vec<Transport>,

    /// Pages of each worker
    #[arg(long, value_name = "N", default_value_t = 8192)]
    #[arg(value_parser = clap::value_parser!(u32).range(16..=1 << 22))]
    pub pages: u32,

    /// Milliseconds between two kills of clients; 0 for none
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub kill_every: u32,

    /// What all actions are drawn from [default: another one in each run, which is printed]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,

    /// A directory on a disk, for the files that pages are written back to
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Let the disks answer old pages now and then, which the soak has to notice
    #[arg(long, hide = true)]
    pub stale: bool,

    /// Be a process of a soak
    #[arg(long, hide = true, value_name = "JSON")]
    pub part: Option<String>,
}

/// `rampack-soak upgrade`.
#[derive(Args)]
pub struct UpgradeArgs {
    /// How much is stored when the daemon is upgraded, with commas between sizes
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "1G,4G,8G")]
    #[arg(value_parser = stored_size)]
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

/// Whole requests of the load, and some of them.
fn stored_size(text: &str) -> Result<u64, String> {
    const REQUEST: u64 = 128 << 10;
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < 8 * REQUEST || bytes % REQUEST != 0 {
        return Err(format!("{text} is no multiple of 128K that is 1M at least"));
    }
    Ok(bytes)
}
