//! `rampack-lab codecs`: the time each codec takes to compress and decompress a page, and the
//! compressed size.
//!
//! All codecs get the same pages in the same shuffled order, and take turns: in each round every
//! codec compresses all pages, then decompresses them, and then the next codec begins. Medians of
//! the rounds leave out disturbed rounds. Only CPU time counts: a codec never waits, so the rest
//! belongs to other programs. liblzo2 takes part where it is installed; our decoder also reads its
//! pages, and its decoder reads ours.

mod kernel;
mod liblzo2;
mod report;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use units::{PAGE_SIZE, Page};
use zcomp::{ALGORITHMS, LZO, LZO_RLE, Params};

use crate::args::CodecsArgs;
use crate::page::{pages, read};
use crate::pages::codec::Codec;
use crate::pages::work::{Speed, Work};
use crate::report::{begin, step};
use liblzo2::Library;

/// The seed of the choice of pages.
const SEED: u64 = 0x636f_6465_6373;

/// A codec in the contest, and its results so far.
pub struct Contestant {
    /// Its name.
    name: String,
    /// Its level, unless it is the default.
    level: Option<i32>,
    /// Whether it is not one of rampack's codecs.
    is_peer: bool,
    codec: Codec,
    /// The speed of each round.
    compress: Vec<Speed>,
    decompress: Vec<Speed>,
}

impl Contestant {
    fn new(name: &str, level: Option<i32>, codec: Codec) -> Contestant {
        let (name, is_peer) = (name.to_owned(), name == liblzo2::NAME);
        Contestant { name, level, is_peer, codec, compress: Vec::new(), decompress: Vec::new() }
    }

    fn is_lzo(&self) -> bool {
        self.is_peer || self.name == LZO
    }

    /// Verifies what it has just compressed. It reads that itself; our lzo also reads liblzo2's
    /// pages, and liblzo2 ours.
    fn verify(&self, work: &Work<'_>, all: &[Contestant]) -> Result<()> {
        let and = |reader: &Contestant| format!("{} made it, read by {}", self.name, reader.name);
        let readers = all.iter().filter(|reader| reader.is_lzo() && self.is_lzo()).chain([self]);
        readers.into_iter().try_for_each(|reader| {
            self.codec.verify(work, &reader.codec).with_context(|| and(reader))
        })
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
        for at in 0..contestants.len() {
            let contestant = &mut contestants[at];
            step(contestant.name.clone())?;
            let (compress, decompress) =
                (contestant.codec.compress(&work)?, contestant.codec.decompress(&work)?);
            match round {
                0 => contestants[at].verify(&work, &contestants)?,
                _ => {
                    contestant.compress.push(compress);
                    contestant.decompress.push(decompress);
                }
            }
        }
    }
    let kernel = args.kernel.as_ref().map(|device| kernel::sizes(device, &chosen)).transpose()?;
    report::json(&args.corpus, &work, left_out, &contestants, &kernel.unwrap_or_default())
}

/// The contestants: liblzo2 if it is installed and our lzo takes part, then the codecs.
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
    if named.iter().any(|(name, _)| [LZO, LZO_RLE].contains(name)) {
        match Library::open() {
            Some(library) => {
                let codec = Codec::new(work, || Ok(library.context()))?;
                contestants.push(Contestant::new(liblzo2::NAME, None, codec));
            }
            None => eprintln!(
                "rampack-lab: no {}: package liblzo2-2 has it; going on without",
                liblzo2::FILE
            ),
        }
    }
    for (number, &(name, level)) in named.iter().enumerate() {
        if named[..number].contains(&(name, level)) {
            bail!("--algorithm {name} takes part already");
        }
        let codec = zcomp::open(name, &Params::at_level(level))?;
        let codec = Codec::new(work, || Ok(codec.context()?))?;
        contestants.push(Contestant::new(name, level, codec));
    }
    Ok(contestants)
}
