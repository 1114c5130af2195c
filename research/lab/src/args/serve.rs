//! The options of `rampack-lab serve`.

use std::path::PathBuf;

use clap::Args;

use super::sizes::within;
use designs::{INDEXES, SLOT_SCHEMES, STREAM_POLICIES, Variants, ZONES};

/// `rampack-lab serve`.
#[derive(Args)]
pub struct ServeArgs {
    /// How much it can hold
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: u64,

    /// The codec
    #[arg(long, value_name = "A", default_value = rampack::DEFAULT_ALGORITHM)]
    pub algorithm: String,

    #[arg(long, value_name = "NAME", help = help("How slots are guarded", SLOT_SCHEMES))]
    pub slots: Option<String>,

    #[arg(long, value_name = "NAME")]
    #[arg(help = help("How threads come by a stream", STREAM_POLICIES))]
    pub streams: Option<String>,

    #[arg(long, value_name = "NAME", help = help("Design of the page allocator", ZONES))]
    pub zone: Option<String>,

    #[arg(long, value_name = "NAME", conflicts_with_all = ["slots", "streams"])]
    #[arg(help = help("Serve a swap area with this index instead of a disk", INDEXES))]
    pub index: Option<String>,

    /// A file or block device that pages of the swap area are written back to
    #[arg(long, value_name = "PATH", requires = "index")]
    pub backing: Option<PathBuf>,

    /// Memory that pages of the swap area may take, in percent of all
    #[arg(long, value_name = "P", requires = "index", value_parser = within(1..=100))]
    pub max_pool_percent: Option<u32>,

    /// Serve it over NBD at this socket, instead of as a block device
    #[arg(long, value_name = "SOCKET")]
    pub nbd: Option<PathBuf>,
}

impl ServeArgs {
    /// The designs that are asked for.
    pub fn variants(&self) -> Variants {
        let usual = Variants::default();
        Variants {
            zone: self.zone.clone().unwrap_or(usual.zone),
            slots: self.slots.clone().unwrap_or(usual.slots),
            streams: self.streams.clone().unwrap_or(usual.streams),
            index: self.index.clone().unwrap_or(usual.index),
            ..Variants::default()
        }
    }
}

fn help(what: &str, names: &[&str]) -> String {
    format!("{what}: {} [default: {}]", names.join(", "), names[0])
}

fn size(text: &str) -> Result<u64, String> {
    units::parse_size(text).map_err(|error| error.to_string())
}
