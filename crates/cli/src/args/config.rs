//! The command line of the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(super) const CONFIG_NOTES: &str = "\
The configuration is /etc/rampack/rampack.toml, or else that of /run/rampack, \
/usr/local/lib/rampack or /usr/lib/rampack, and over it the drop-ins rampack.toml.d/*.toml of all \
four, sorted by their names. Of several drop-ins of one name the one in the first of these \
directories counts; a link to /dev/null hides the others. Sections have the names of \
devices, keys those of options without the dashes:
  [zram0]       options of `rampack up`        [zram0.set]  attributes
  [swap0]       options of `rampack swap on`   [swap0.set]  parameters of the cache
  [serve]       --transport, --nbd-tcp and others of `rampack serve`

`rampack serve --config` and `rampack swap on --config` start what is configured, unless rampack=0 \
is on the kernel's command line.";

/// `rampack config`.
#[derive(Args, Debug)]
pub struct Config {
    /// What to do with it.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// What to do with the configuration.
#[derive(Subcommand, Debug)]
pub enum ConfigAction {
    /// Tell what is wrong in it, or what it would make.
    Check(ConfigFiles),
    /// Print all of it as one file, with where each value is from.
    Show(ConfigFiles),
    /// Have the running daemon follow the configuration: what can change at once does, and what
    /// cannot is told before. What fails stops nothing else, and is tried again the next time.
    Apply(ConfigApply),
    /// Print the configuration of zram-generator as one of rampack, and tell what has no
    /// counterpart.
    Import(ConfigImport),
}

/// The files of `rampack config`.
#[derive(Args, Debug)]
pub struct ConfigFiles {
    /// Read these files alone, each over those before it [default: those of the system, also if a
    /// daemon has another --config]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `rampack config apply`.
#[derive(Args, Debug)]
pub struct ConfigApply {
    /// Read these files alone, each over those before it [default: the file of the daemon's
    /// --config, or those of the system]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Tell what would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Take down disks, mounts and swap devices that are not configured any more, unless they are
    /// in use. A disk is lost with what is on it.
    #[arg(long)]
    pub remove: bool,
}

/// `rampack config import`.
#[derive(Args, Debug)]
pub struct ConfigImport {
    /// The file [default: zram-generator.conf and its drop-ins, in the places of systemd]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}
