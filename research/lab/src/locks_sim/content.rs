//! The pages that threads store: of a corpus, or made up.

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;

use super::sections::Bench;
use crate::page::page;
use crate::sys::Memory;

/// Pages made up when there is no corpus.
const MADE_UP: usize = 4096;
/// Pages taken of a corpus, at most.
const MOST: usize = 4096;
/// What an object of `eight` has at most, so that a frame has room for two, if pages allow it.
const SMALL: usize = 1300;
const SEED: u64 = 0x6c6f_636b_7300;

/// Pages, and what becomes of them when they are compressed.
pub struct Contents {
    /// What they are.
    pub name: String,
    /// The pages.
    pub bytes: Memory,
    /// Of each page that is not the same bytes over and over: its number, class and lines.
    pub objects: Vec<(usize, usize, u32)>,
    /// Eight of these.
    pub eight: Vec<(usize, usize, u32)>,
    /// Mean length of the objects.
    pub mean_length: f64,
}

impl Contents {
    /// Those of a corpus, or made up.
    ///
    /// # Errors
    /// The file cannot be read, or has less than eight pages to compress; no memory.
    pub fn new(corpus: Option<&std::path::Path>, bench: &Bench) -> Result<Contents> {
        let (name, bytes) = match corpus {
            Some(path) => (path.display().to_string(), crate::page::read(path)?),
            None => ("made up: pointers, small numbers, text".to_owned(), made_up()?),
        };
        let compressed = bench.objects(&bytes)?;
        let mut chosen: Vec<usize> = (0..compressed.len()).collect();
        chosen.retain(|&at| {
            let page = page(&bytes, at);
            page[8..] != page[..PAGE_SIZE - 8]
        });
        if chosen.len() < 8 {
            bail!("{name}: fewer than 8 pages that are not one pattern over and over");
        }
        fastrand::Rng::with_seed(SEED).shuffle(&mut chosen);
        chosen.truncate(MOST);
        let of = |&at: &usize| (at, compressed[at].0, compressed[at].2);
        let objects: Vec<_> = chosen.iter().map(of).collect();
        let length = |at: usize| compressed[at].1;
        let mean_length =
            chosen.iter().map(|&at| length(at) as f64).sum::<f64>() / chosen.len() as f64;
        // The first small ones; if there are too few, the smallest.
        let mut by_need = chosen.clone();
        by_need.sort_by_key(|&at| length(at).max(SMALL));
        let eight = by_need.iter().take(8).map(of).collect();
        Ok(Contents { name, bytes, objects, eight, mean_length })
    }
}

/// Pages that look like memory, the same each time.
fn made_up() -> Result<Memory> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut bytes = Memory::new(MADE_UP * PAGE_SIZE).context("no memory for pages")?;
    for page in bytes.chunks_exact_mut(PAGE_SIZE) {
        let mut at = 0;
        while at < PAGE_SIZE {
            let (word, zeroes) = match random.u64(..4) {
                0 => (0x7f00_0000_0000 + random.u64(..1 << 20) * 16, 0),
                1 => (random.u64(..500), 8),
                2 => (u64::from_ne_bytes(*b"a text, "), 0),
                _ => (0, 32),
            };
            let end = PAGE_SIZE.min(at + 8);
            page[at..end].copy_from_slice(&word.to_ne_bytes()[..end - at]);
            at += 8 + zeroes;
        }
    }
    Ok(bytes)
}
