//! The kinds of swap, by name.

use std::fmt;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::args::name_of;

/// The kinds of swap.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No limit and no swap
    None,
    /// A plain file on a disk
    File,
    /// The same, behind the kernel's zswap
    KernelZswap,
    /// The kernel's zram
    KernelZram,
    /// Ours: `rampack swap on`, with a file on a disk behind it
    Rampack,
    /// The same, with the kernel's zswap in front: `rampack swap on --front zswap`
    #[value(name = "zswap+rampack")]
    Behind,
    /// The same cache with another index, served by this program
    Design,
}

/// A kind of swap, with its codec or index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mode {
    pub kind: Kind,
    /// The codec of kernel-zswap, kernel-zram and rampack, also of that behind zswap. For a
    /// design, the index and optionally `+` and a codec.
    pub variant: Option<String>,
}

impl Mode {
    /// Parses `KIND` or `KIND:VARIANT`.
    pub fn parse(text: &str) -> Result<Mode, String> {
        let (name, variant) = match text.split_once(':') {
            Some((name, variant)) => (name, Some(variant)),
            None => (text, None),
        };
        let Ok(kind) = Kind::from_str(name, false) else {
            let known: Vec<String> = Kind::value_variants().iter().map(name_of).collect();
            return Err(format!("{name:?} is no kind of swap; there are {}", known.join(", ")));
        };
        match variant {
            Some(_) if matches!(kind, Kind::None | Kind::File) => {
                Err(format!("{name} has no variants, so {text:?} makes no sense"))
            }
            None if kind == Kind::Design => {
                Err(format!("{text:?}: which index? {}", designs::INDEXES.join(", ")))
            }
            Some("") => Err(format!("{text:?}: what comes after the colon is missing")),
            variant => Ok(Mode { kind, variant: variant.map(str::to_owned) }),
        }
    }

    /// Parses the modes in an argument: `all`, or names with commas between them.
    pub fn list(texts: &[String]) -> Result<Vec<Mode>> {
        let mut modes = Vec::new();
        for text in texts {
            let new = match text.as_str() {
                "all" => KINDS.iter().map(|&kind| Mode { kind, variant: None }).collect(),
                text => vec![Mode::parse(text).map_err(anyhow::Error::msg)?],
            };
            modes.extend(new);
        }
        for (number, mode) in modes.iter().enumerate() {
            if modes[..number].contains(mode) {
                bail!("{mode} is there already");
            }
        }
        Ok(modes)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.variant {
            Some(variant) => write!(f, "{}:{variant}", name_of(&self.kind)),
            None => f.pad(&name_of(&self.kind)),
        }
    }
}

/// All kinds of products, in the order of tables.
const KINDS: [Kind; 6] =
    [Kind::None, Kind::File, Kind::KernelZswap, Kind::KernelZram, Kind::Rampack, Kind::Behind];
