//! `rampack-lab codecs`: the time each codec takes to compress and decompress a page, and the
//! compressed size.
//!
//! All codecs get the same pages in the same shuffled order, and take turns: in each round every
//! codec compresses all pages, then decompresses them, and then the next codec begins. Medians of
//! the rounds leave out disturbed rounds. Only CPU time counts: a codec never waits, so the rest
//! belongs to other programs. liblzo2 takes part where it is installed; our decoder also reads its
//! pages, and its decoder reads ours.

mod contest;
mod kernel;
mod liblzo2;
mod report;

use anyhow::{Result, bail};
use units::{PAGE_SIZE, Page};

use crate::args::CodecsArgs;
use crate::page::pages;
use crate::page::read;
use crate::pages::by_name;
use contest::{Contest, Contestant};
use liblzo2::Library;

/// The codecs that a run without names compares, in the kernel's order.
const ALL: &[&str] = &[
    zcomp::LZO_RLE,
    zcomp::LZO,
    zcomp::LZ4,
    zcomp::LZ4HC,
    zcomp::ZSTD,
    zcomp::DEFLATE,
    zcomp::EIGHT42,
];

/// The seed of the order of pages.
const SEED: u64 = 0x636f_6465_6373;

/// Runs the command.
///
/// # Errors
/// The corpus cannot be read, a codec is unknown or returns another page, or the device is no block
/// device.
pub fn run(args: &CodecsArgs) -> Result<()> {
    let corpus = read(&args.corpus)?;
    let all = corpus.len() / PAGE_SIZE;
    let mut chosen: Vec<&Page> = pages(&corpus).filter(|page| !is_same_filled(page)).collect();
    if chosen.is_empty() {
        bail!("{} has only pages of one pattern each", args.corpus.display());
    }
    let left_out = all - chosen.len();
    fastrand::Rng::with_seed(SEED).shuffle(&mut chosen);
    chosen.truncate(args.pages as usize);

    let contest = Contest::new(&chosen, contestants(args)?)?;
    let bar = crate::report::bar(contest.steps(args.repeat));
    let contestants = contest.run(args.repeat, &bar);
    bar.finish_and_clear();
    let contestants = contestants?;

    let mut report = report::Report::new(&args.corpus, chosen.len(), left_out, &contestants);
    if let Some(device) = &args.kernel {
        report.add_kernel(kernel::sizes(device, &chosen, ALL)?);
    }
    crate::report::show(&report, args.json)
}

/// The contestants: liblzo2 if it is installed and our lzo takes part, then the codecs.
fn contestants(args: &CodecsArgs) -> Result<Vec<Contestant>> {
    let mut named: Vec<(String, Option<i32>)> = Vec::new();
    for text in &args.algorithms {
        let (name, level) = match text.split_once(':') {
            None => (text.as_str(), None),
            Some((name, level)) => match level.parse() {
                Ok(level) => (name, Some(level)),
                Err(_) => bail!("--algorithm {text}: {level:?} is no level"),
            },
        };
        named.push((name.to_owned(), level));
    }
    if named.is_empty() {
        named = ALL.iter().map(|&name| (name.to_owned(), None)).collect();
    }
    let mut contestants = Vec::new();
    if named.iter().any(|(name, _)| [zcomp::LZO, zcomp::LZO_RLE].contains(&&**name)) {
        match Library::open() {
            Some(library) => contestants.push(Contestant::peer(liblzo2::NAME, library.context())),
            None => eprintln!(
                "rampack-lab: no {}: package liblzo2-2 has it; going on without",
                liblzo2::FILE
            ),
        }
    }
    for (name, level) in named {
        let Some(codec) = by_name(&name, level)? else {
            bail!("no algorithm {name:?}; there are: {}", ALL.join(" "));
        };
        if contestants.iter().any(|other: &Contestant| other.is(&name, level)) {
            bail!("--algorithm {name} takes part already");
        }
        contestants.push(Contestant::ours(&name, level, codec.context()?));
    }
    Ok(contestants)
}

/// Whether the page repeats the same eight bytes.
fn is_same_filled(page: &Page) -> bool {
    page[8..] == page[..PAGE_SIZE - 8]
}
