//! The options of the commands about page allocators.

use clap::Args;

use super::sizes::within;
use crate::zone::Workload;

/// `rampack-lab zone`.
#[derive(Args)]
pub struct ZoneArgs {
    /// Designs, with commas between them, or `all`. Besides the engine's there is a control:
    /// `no-pcp` (`spin` without pcp lists: what they save)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    pub design: Vec<String>,

    /// Numbers of threads, each on a CPU of its own; never more than there are CPUs [default: 1,
    /// and 2 if there are two]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = within(1..=1024))]
    pub threads: Vec<u32>,

    /// What is done, with commas between them
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',', default_value = "bulk")]
    pub workload: Vec<Workload>,

    /// Turns of each design, which take turns; medians are printed
    #[arg(long, value_name = "R", default_value_t = 11, value_parser = within(1..=1000))]
    pub repeat: u32,

    /// Cycles of a turn that count; one more goes before
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within(1..=100_000))]
    pub cycles: u32,

    /// Frames of 4 KiB of the zone [default: 262144, and for page-fault1 at least 65536 for each
    /// thread]
    #[arg(long, value_name = "N", value_parser = within(1024..=1 << 28))]
    pub frames: Option<u32>,
}

/// `rampack-lab zone-sim`.
#[derive(Args)]
pub struct ZoneSimArgs {
    /// Designs, with commas between them, or `all`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    pub design: Vec<String>,

    /// Threads to simulate, each on a CPU of its own, half of them in each of two zones
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    #[arg(default_values_t = [1, 2, 4, 16, 56, 112], value_parser = within(1..=256))]
    pub threads: Vec<u32>,

    /// Pages a thread allocates before it frees them; will-it-scale has 32768
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = within(64..=1 << 20))]
    pub pages: u32,

    /// Cycles of each thread that count; one more goes before
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = within(1..=1000))]
    pub cycles: u32,

    /// Turns of each design in the measurement
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = within(1..=1000))]
    pub repeat: u32,

    /// Frames of 4 KiB of the zones that are measured
    #[arg(long, value_name = "N", default_value_t = 131_072)]
    #[arg(value_parser = within(1024..=1 << 28))]
    pub frames: u32,

    /// What the simulation draws its random numbers from; the same seed and the same times give
    /// the same result
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}
