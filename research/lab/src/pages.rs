//! `rampack-lab pages` measures the cost of storing and loading a page.

pub(crate) mod codec;
mod contest;
mod device;
mod engine;
pub(crate) mod kernel;
mod report;
mod swap;
mod target;
pub(crate) mod work;

use anyhow::{Result, bail};
use serde_json::Value;
use units::PAGE_SIZE;

use crate::args::PagesArgs;
use crate::page;
use contest::{Kind, contestants};
use work::Work;

pub(crate) use device::Device;
pub(crate) use engine::{Engine, machine};
pub(crate) use swap::Swap;
pub(crate) use target::Target;

/// Runs the command.
pub fn run(args: &PagesArgs) -> Result<Value> {
    let corpus = page::read(&args.corpus)?;
    let work = Work::new(&corpus, args.threads as usize)?.churning(args.churn);
    let work = work.in_requests(args.request as usize / PAGE_SIZE)?;
    let kinds = kinds(args)?;
    // Dropped at the end in every case: the drop resets the device.
    let _setup = setup(args, &kinds, work.pages())?;
    let mut contestants = contestants(&work, kinds, args.algorithm.as_deref())?;
    crate::report::begin(u64::from(args.repeat) * contestants.len() as u64);
    for _ in 0..args.repeat {
        contestants.iter_mut().try_for_each(|contestant| contestant.round(&work))?;
    }
    let outcomes: Vec<Value> = contestants.iter().map(|it| report::outcome(it, &work)).collect();
    Ok(report::compared(&outcomes))
}

/// The contestants: first the one asked for, or the engine; then the ones to compare it with.
fn kinds(args: &PagesArgs) -> Result<Vec<Kind>> {
    let mut kinds = vec![Kind::parse(args.device.as_deref().unwrap_or("engine"))?];
    for text in &args.compare {
        let kind = Kind::parse(text)?;
        if kinds.contains(&kind) {
            bail!("--compare {text}: it takes part already");
        }
        kinds.push(kind);
    }
    Ok(kinds)
}

/// Sets up the kernel's device, if the command line asks for that.
fn setup(args: &PagesArgs, kinds: &[Kind], pages: usize) -> Result<Option<kernel::Setup>> {
    let Some(algorithm) = &args.setup_kernel_zram else { return Ok(None) };
    let mut paths = kinds.iter().filter_map(Kind::path);
    let Some(path) = paths.find(|path| path.to_string_lossy().starts_with("/dev/zram")) else {
        bail!("--setup-kernel-zram needs a device /dev/zramN, as --device or --compare");
    };
    kernel::Setup::new(path, algorithm, pages).map(Some)
}
