//! The stored pages, sorted by their compressed length.

use std::path::Path;

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;
use zcomp::{Compressor, Lz4, Params};

use crate::made_up;
use crate::page::pages;
use crate::sys::Memory;

/// The codec that gives the compressed lengths.
pub const ALGORITHM: &str = zcomp::LZ4;
/// The most pages taken from a corpus. They stay in memory all the time.
const MOST: usize = 32_768;

/// Exponents of the drawn number, one for each round in turn: usual sizes, many small, many large.
const BIASES: [f64; 3] = [1.0, 2.0, 0.5];

/// Pages.
pub struct Content {
    /// The name of the contents.
    pub name: String,
    /// The pages.
    pub bytes: Memory,
    /// The pages that are not same-filled, by compressed length.
    sorted: Vec<usize>,
}

impl Content {
    /// Reads the pages of a corpus, or makes them up.
    pub fn new(corpus: Option<&Path>, random: &mut fastrand::Rng) -> Result<Content> {
        let (name, bytes) = made_up::or_read(corpus, random)?;
        let codec = Lz4::new(&Params::default()).context("lz4")?;
        let mut context = codec.context().context("lz4")?;
        let mut room = vec![0; 2 * PAGE_SIZE];
        let mut lengths: Vec<(usize, usize)> = pages(&bytes)
            .take(MOST)
            .enumerate()
            .filter(|(_, page)| zcomp::same_filled(page).is_none())
            .map(|(at, page)| (context.compress(page, &mut room).unwrap_or(PAGE_SIZE), at))
            .collect();
        if lengths.is_empty() {
            bail!("{name}: every page is one pattern over and over");
        }
        lengths.sort_unstable();
        Ok(Content { name, bytes, sorted: lengths.into_iter().map(|(_, at)| at).collect() })
    }

    /// Draws a page for a slot of this round.
    pub fn draw(&self, round: u32, random: &mut fastrand::Rng) -> usize {
        let part = random.f64();
        let part = part.powf(BIASES[round as usize % BIASES.len()]);
        let at = (part * self.sorted.len() as f64) as usize;
        self.sorted[at.min(self.sorted.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_draw_different_sizes() {
        let mut random = fastrand::Rng::with_seed(1);
        let content = Content::new(None, &mut random).expect("pages");
        assert_eq!(content.sorted.len(), 4096);
        let mut mean = |round| {
            let drawn = (0..2000).map(|_| content.draw(round, &mut random) as f64);
            drawn.sum::<f64>() / 2000.0
        };
        // Made-up pages are in the order of their sizes.
        let (usual, small, large) = (mean(0), mean(1), mean(2));
        assert!(small < usual * 0.8 && usual < large * 0.8, "{small} {usual} {large}");
    }
}
