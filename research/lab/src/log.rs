//! `rampack-lab log`: the bytes that a log of compressed pages writes to a device, with its
//! cleaning, beside one block for each page.
//!
//! Pages have the compressed sizes of a dump. On a clock of the lab's own, each use of a page
//! changes it: what the device has of it is freed. A page that is not used for a while is written
//! back. The device is as large as makes the most live bytes of a run the wanted share of it. There
//! is no I/O: the account decides where each byte goes.
//!
//! * [`trace`]: what is written and freed, and when. [`replay`]: the log under a trace.
//!   [`report`]: the results.

mod replay;
mod report;
mod trace;

use anyhow::{Context, Result, anyhow, bail};
use segments::{Layout, Survivors};
use units::PAGE_SIZE;
use zcomp::{Params, Stream};

use crate::args::LogArgs;
use crate::{interrupt, page, zone};
use report::{Report, Run};
use trace::Trace;

/// Runs the command.
///
/// # Errors
/// A dump cannot be read, the codec is unknown, or a device of the wanted size is too small or too
/// large for a log.
pub fn run(args: &LogArgs) -> Result<()> {
    let bar = zone::bar((args.corpus.len() * args.ages.len() * args.full.len() * 2) as u64);
    let mut runs = Vec::new();
    for path in &args.corpus {
        let name = path.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into());
        let lengths = compress(&page::read(path)?, &args.algorithm)?;
        if lengths.is_empty() {
            bail!("{} has only same-filled pages, which are not written back", path.display());
        }
        for ages in &args.ages {
            bar.set_message(format!("{name}: {ages:?}").to_lowercase());
            let trace = Trace::new(*ages, &lengths, args)?;
            for &full in &args.full {
                for survivors in [Survivors::Apart, Survivors::Together] {
                    interrupt::check()?;
                    let segment_bytes = args.segment << 20;
                    let bytes = trace.most_live * 100 / u64::from(full);
                    let layout = Layout { bytes, segment_bytes, survivors };
                    let counts = replay::replay(&trace, layout).with_context(|| {
                        format!("{name}, {full}% full: more --pages make the device larger")
                    })?;
                    runs.push(Run::new(&name, *ages, full, layout, &trace, &counts));
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    Report {
        command: "log",
        algorithm: args.algorithm.clone(),
        pages: args.pages,
        seconds: args.seconds,
        idle_seconds: args.idle,
        segment_bytes: args.segment << 20,
        seed: args.seed,
        runs,
    }
    .show(args)
}

/// The compressed lengths of the pages that are not same-filled.
fn compress(dump: &[u8], algorithm: &str) -> Result<Vec<u16>> {
    let codec = zcomp::open(algorithm, &Params::default()).map_err(|fault| anyhow!("{fault}"))?;
    let mut stream = Stream::new(&*codec).map_err(|fault| anyhow!("{fault}"))?;
    let pages = page::pages(dump).filter(|page| zcomp::same_filled(page).is_none());
    // A page that does not shrink is written as it is.
    Ok(pages
        .map(|page| stream.compress(page).map_or(PAGE_SIZE, |bytes| bytes.len()) as u16)
        .collect())
}
