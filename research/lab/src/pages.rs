//! `rampack-lab pages` measures the cost of storing and loading a page.

mod codec;
mod contest;
pub(crate) mod device;
mod engine;
pub(crate) mod kernel;
mod report;
mod swap;
mod target;
mod work;

use std::path::Path;

use anyhow::{Result, bail};
use designs::{INDEXES, MEMORIES, SLOT_SCHEMES, ZONES};

use crate::args::PagesArgs;
use crate::page;
use contest::{Contest, Kind};
use report::Outcome;
use work::Work;

pub(crate) use codec::by_name;
pub(crate) use device::Device;
pub(crate) use target::Target;

/// Runs the command.
///
/// # Errors
/// The corpus cannot be read, a target fails, or a page does not come back as it was stored.
pub fn run(args: &PagesArgs) -> Result<()> {
    let corpus = page::read(&args.corpus)?;
    let work = Work::new(&corpus, args.threads as usize)?.churning(args.churn);
    let kinds = kinds(args)?;
    // Dropped at the end in every case: the drop resets the device.
    let _setup = setup(args, &kinds, work.pages())?;
    let contest = Contest::new(&work, &kinds, args.algorithm.as_deref(), args.level)?;

    let bar = crate::report::bar(contest.steps(args.repeat));
    let result = contest.run(args.repeat, &bar);
    bar.finish_and_clear();

    let outcome = |contestant| Outcome::new(contestant, args.level, work.pages(), work.threads());
    let outcomes: Vec<Outcome> = result?.iter().map(outcome).collect();
    if let Some(path) = &args.plot {
        report::bars(&outcomes).write(path)?;
    }
    crate::report::show(&report::json(&outcomes)?, args.json)
}

/// The contestants: first the one asked for, or the engine; then the ones to compare it with.
fn kinds(args: &PagesArgs) -> Result<Vec<Kind>> {
    let engine = |name: Option<&str>| match name {
        None => Ok(Kind::Engine(SLOT_SCHEMES[0])),
        Some(name) => match SLOT_SCHEMES.iter().find(|known| **known == name) {
            Some(known) => Ok(Kind::Engine(known)),
            None => bail!("no slot scheme {name:?}; there are: {}", SLOT_SCHEMES.join(" ")),
        },
    };
    let swap = |name: &str| match INDEXES.iter().find(|known| **known == name) {
        Some(known) => Ok(Kind::Swap(known)),
        None => bail!("no index {name:?}; there are: {}", INDEXES.join(" ")),
    };
    let zone = |name: &str| match ZONES.iter().find(|known| **known == name) {
        Some(known) => Ok(Kind::Zone(known)),
        None => bail!("no zone {name:?}; there are: {}", ZONES.join(" ")),
    };
    let memory = |name: &str| match MEMORIES.iter().find(|known| **known == name) {
        Some(known) => Ok(Kind::Memory(known)),
        None => bail!("no memory {name:?}; there are: {}", MEMORIES.join(" ")),
    };
    let kind = |path: &Path| match path.to_str() {
        Some(name) if name.starts_with("memory:") => memory(name.trim_start_matches("memory:")),
        Some(name) if name.starts_with("zone:") => zone(name.trim_start_matches("zone:")),
        Some("swap") => Ok(Kind::Swap(INDEXES[0])),
        Some(name) if name.starts_with("swap:") => swap(name.trim_start_matches("swap:")),
        Some("engine") => engine(args.slots.as_deref()),
        Some(name) if name.starts_with("engine:") => engine(name.strip_prefix("engine:")),
        _ => Ok(Kind::Device(path.to_owned())),
    };
    let first = args.device.as_deref().map(kind);
    let mut kinds = vec![first.unwrap_or_else(|| engine(args.slots.as_deref()))?];
    for path in &args.compare {
        let kind = kind(path)?;
        if kinds.contains(&kind) {
            bail!("--compare {}: it takes part already", path.display());
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// Sets up the kernel's device, if the command line asks for that.
fn setup(args: &PagesArgs, kinds: &[Kind], pages: usize) -> Result<Option<kernel::Setup>> {
    let Some(algorithm) = &args.setup_kernel_zram else { return Ok(None) };
    let is_zram = |path: &&Path| path.to_string_lossy().starts_with("/dev/zram");
    let Some(path) = kinds.iter().filter_map(Kind::path).find(is_zram) else {
        bail!("--setup-kernel-zram needs a device /dev/zramN, as --device or --compare");
    };
    kernel::Setup::new(path, algorithm, pages).map(Some)
}
