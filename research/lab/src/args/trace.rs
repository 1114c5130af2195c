//! The arguments of `trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::sizes::{size, swap_size};

/// `rampack-lab trace`.
#[derive(Args)]
pub struct TraceArgs {
    /// The program: python, node, java, redis, cc1 or rustc
    #[arg(long, value_name = "NAME", required_unless_present = "command")]
    pub program: Option<String>,

    /// The file to write. A file of this name is replaced
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// Memory that the program may use
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub limit: u64,

    /// How large a program grows that would grow for ever [default: three times the limit]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,

    /// How much swap there is
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = swap_size)]
    pub swap_size: u64,

    /// Seconds that are recorded from the first use on, if the program does not end before
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,

    /// Pages in the file: a sample of those that were used
    #[arg(long, value_name = "N", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub pages: u32,

    /// Which pages are in the sample
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Go on although other swap is on
    #[arg(long)]
    pub force: bool,

    /// Another program, with its arguments
    #[arg(last = true, conflicts_with = "program", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
