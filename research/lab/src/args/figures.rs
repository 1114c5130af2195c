//! The options of `rampack-lab figures`.

use std::path::PathBuf;

use clap::Args;

/// `rampack-lab figures`.
#[derive(Args)]
pub struct FiguresArgs {
    /// The directory for report.html, the figures of each measurement, and the dumps
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,

    /// Small sizes: to see that everything runs. The figures are worth nothing
    #[arg(long)]
    pub quick: bool,

    /// Only these measurements, with commas between them. They are added to what DIR has of the
    /// same commit
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,

    /// The commit that is measured [default: what git says of the directory this runs in]
    #[arg(long, value_name = "HASH")]
    pub commit: Option<String>,

    /// Print the names of the measurements, and how long each takes
    #[arg(long)]
    pub list: bool,
}
