//! `rampack-lab codecs`: the time each codec takes to compress and decompress a page, and the
//! compressed size.
//!
//! All codecs get the same pages in the same shuffled order, and take turns: in each round every
//! codec compresses all pages, then decompresses them, and then the next codec begins. Medians of
//! the rounds leave out disturbed rounds. Only CPU time counts: a codec never waits, so the rest
//! belongs to other programs.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use units::{PAGE_SIZE, Page};
use zcomp::{ALGORITHMS, Params};

use crate::args::CodecsArgs;
use crate::page::{pages, read};
use crate::pages::codec::Codec;
use crate::pages::work::{Speed, Work};
use crate::report::{begin, step};
use crate::statistics::median;

/// The seed of the choice of pages.
const SEED: u64 = 0x636f_6465_6373;

/// A codec in the contest, and its results so far.
struct Contestant {
    name: String,
    /// Its level, unless it is the default.
    level: Option<i32>,
    codec: Codec,
    /// The speed of each round.
    compress: Vec<Speed>,
    decompress: Vec<Speed>,
}

impl Contestant {
    /// The result. Each time is the median of the rounds, in nanoseconds for a page.
    fn row(&self, work: &Work<'_>) -> Result<Value> {
        let wall = |speeds: &[Speed]| median(speeds.iter().map(|speed| speed.ns_per_page));
        let cpu = |speeds: &[Speed]| -> Vec<f64> {
            speeds.iter().filter_map(|speed| speed.cpu_ns_per_page).collect()
        };
        let (compress, decompress) = (cpu(&self.compress), cpu(&self.decompress));
        let bytes: u64 = self.codec.lengths(work)?.into_iter().map(u64::from).sum();
        Ok(json!({
            "name": self.name,
            "level": self.level,
            "compress_ns": wall(&self.compress),
            "decompress_ns": wall(&self.decompress),
            "compress_cpu_ns": median(compress.iter().copied()),
            "decompress_cpu_ns": median(decompress.iter().copied()),
            "samples": { "compress_cpu_ns": compress, "decompress_cpu_ns": decompress },
            "bytes": bytes,
            "ratio": work.corpus().len() as f64 / bytes as f64,
        }))
    }
}

/// Runs the command.
pub fn run(args: &CodecsArgs) -> Result<Value> {
    let corpus = read(&args.corpus)?;
    let all = corpus.len() / PAGE_SIZE;
    let is_compressed = |page: &&Page| zcomp::same_filled(page).is_none();
    let mut chosen: Vec<&Page> = pages(&corpus).filter(is_compressed).collect();
    if chosen.is_empty() {
        bail!("{} has only pages of one pattern each", args.corpus.display());
    }
    let left_out = all - chosen.len();
    fastrand::Rng::with_seed(SEED).shuffle(&mut chosen);
    chosen.truncate(args.pages as usize);
    let chosen: Vec<u8> = chosen.into_iter().flatten().copied().collect();
    let work = Work::new(&chosen, 1)?;
    let mut contestants = contestants(args, &work)?;
    begin(u64::from(args.repeat + 1) * contestants.len() as u64);
    // The first round verifies everything and does not count.
    for round in 0..=args.repeat {
        for contestant in &mut contestants {
            step(contestant.name.clone())?;
            let (compress, decompress) =
                (contestant.codec.compress(&work)?, contestant.codec.decompress(&work)?);
            match round {
                0 => contestant.codec.verify(&work)?,
                _ => {
                    contestant.compress.push(compress);
                    contestant.decompress.push(decompress);
                }
            }
        }
    }
    Ok(json!({
        "corpus": args.corpus.display().to_string(),
        "pages": work.pages(),
        "same_filled_left_out": left_out,
        "rounds": args.repeat,
        "codecs": contestants.iter().map(|one| one.row(&work)).collect::<Result<Vec<Value>>>()?,
    }))
}

/// The codecs that the command line asks for, or all.
fn contestants(args: &CodecsArgs, work: &Work<'_>) -> Result<Vec<Contestant>> {
    let mut named: Vec<(&str, Option<i32>)> = Vec::new();
    for text in &args.algorithms {
        named.push(match text.split_once(':') {
            None => (text, None),
            Some((name, level)) => match level.parse() {
                Ok(level) => (name, Some(level)),
                Err(_) => bail!("--algorithm {text}: {level:?} is no level"),
            },
        });
    }
    if named.is_empty() {
        named = ALGORITHMS.iter().map(|&name| (name, None)).collect();
    }
    let mut contestants = Vec::new();
    for (number, &(name, level)) in named.iter().enumerate() {
        if named[..number].contains(&(name, level)) {
            bail!("--algorithm {name} takes part already");
        }
        let codec = zcomp::open(name, &Params::at_level(level))?;
        let codec = Codec::new(work, || Ok(codec.context()?))?;
        let (name, compress, decompress) = (name.to_owned(), Vec::new(), Vec::new());
        contestants.push(Contestant { name, level, codec, compress, decompress });
    }
    Ok(contestants)
}
