//! The options of the commands that watch a daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::values::{ColumnNames, column_names, number, tcp_address};

pub(super) const METRICS_NOTES: &str = "\
Only in a program that was built with `--features metrics`.

The names, units and meanings are those of the attributes (`rampack tree`). The daemon is asked at \
each scrape; a scrape while there is none gets 503, and a file has rampack_up 0 alone. The label \
root tells daemons apart.

Examples:
  rampack metrics
  rampack metrics --textfile /var/lib/prometheus/node-exporter/rampack.prom
  rampack metrics --listen 9713";

pub(super) const TOP_NOTES: &str = "\
Only in a program that was built with `--features top`. A terminal of 80 columns and 24 lines will \
do.

Keys: q ends it, s sorts by the next column, p pauses, the arrows choose a disk, w writes its \
pages back (asked for twice), c compresses them again, l times requests, or no more.";

/// `rampack status`.
#[derive(Args, Debug)]
pub struct Status {
    /// Show only these devices.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Print one JSON object.
    #[arg(long, short = 'J')]
    pub json: bool,
    /// Print sizes in bytes.
    #[arg(long, short)]
    pub bytes: bool,
    /// Separate columns by one space, print `-` for an empty one, and leave out swap devices.
    #[arg(long, short, conflicts_with = "json")]
    pub raw: bool,
    /// Leave out the line of column names, and swap devices.
    #[arg(long, short, conflicts_with = "json")]
    pub noheadings: bool,
    /// Print the JSON schema of what --json prints, with its version, and ask no daemon.
    #[arg(long, conflicts_with_all = ["names", "json", "bytes", "raw", "noheadings"])]
    pub schema: bool,
    /// Show only these columns, separated by commas. They are of disks: swap devices are left out,
    /// except with --json.
    #[arg(long, short, value_name = "COLUMNS", value_parser = column_names)]
    pub output: Option<ColumnNames>,
}

/// `rampack metrics`.
#[derive(Args, Debug)]
pub struct Metrics {
    /// Write to a file for the textfile collector of node_exporter, which reads files that end in
    /// .prom; each daemon needs a file of its own. A reader finds the old file or the new one,
    /// never a part. If no daemon answers, the file says so and the command fails.
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub textfile: Option<PathBuf>,
    /// Serve http://HOST:PORT/metrics until Ctrl-C. A port alone is on the loopback address.
    /// Another address needs --insecure.
    #[arg(long, value_name = "[HOST:]PORT", value_parser = tcp_address)]
    pub listen: Option<SocketAddr>,
    /// Allow --listen addresses that other machines reach: they can all read the numbers.
    #[arg(long, requires = "listen")]
    pub insecure: bool,
}

/// `rampack top`.
#[derive(Args, Debug)]
pub struct Top {
    /// The time between two looks, in seconds.
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = number(1..=3600_u32))]
    pub interval: u32,
}
