//! The pages that the threads store: from a corpus, or made up.

use anyhow::{Result, bail};

use super::sections::Bench;
use crate::made_up;
use crate::page::page;
use crate::sys::Memory;

/// The most pages taken from a corpus.
const MOST: usize = 4096;
/// The longest object of `eight`, so that a frame holds two objects, if the pages allow it.
const SMALL: usize = 1300;
const SEED: u64 = 0x6c6f_636b_7300;

/// Pages, and their objects after compression.
pub struct Contents {
    /// The name of the contents.
    pub name: String,
    /// The pages.
    pub bytes: Memory,
    /// For each page that is not same-filled: its number, class and lines.
    pub objects: Vec<(usize, usize, u32)>,
    /// Eight of `objects`, for the workload `eight`.
    pub eight: Vec<(usize, usize, u32)>,
    /// Mean length of the objects.
    pub mean_length: f64,
}

impl Contents {
    /// Reads the pages of a corpus, or makes them up.
    pub fn new(corpus: Option<&std::path::Path>, bench: &Bench) -> Result<Contents> {
        let mut random = fastrand::Rng::with_seed(SEED);
        let (name, bytes) = made_up::or_read(corpus, &mut random)?;
        let compressed = bench.objects(&bytes)?;
        let mut chosen: Vec<usize> = (0..compressed.len()).collect();
        chosen.retain(|&at| zcomp::same_filled(page(&bytes, at)).is_none());
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
        // The first eight small objects; if there are too few, the smallest.
        let mut by_need = chosen.clone();
        by_need.sort_by_key(|&at| length(at).max(SMALL));
        let eight = by_need.iter().take(8).map(of).collect();
        Ok(Contents { name, bytes, objects, eight, mean_length })
    }
}
