//! The options of `rampack-lab soak`.

use std::path::PathBuf;

use clap::Args;

use crate::soak::Transport;

/// `rampack-lab soak`.
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
