//! The pages that are stored, by how much they shrink.

use std::path::Path;

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;
use zcomp::{Compressor, Lz4, Params};

use crate::page::pages;
use crate::sys::Memory;

/// The codec that makes their sizes.
pub const ALGORITHM: &str = zcomp::LZ4;
/// Pages made up when there is no corpus.
const MADE_UP: usize = 4096;
/// Pages taken of a corpus, at most: they are in memory all the time.
const MOST: usize = 32_768;

/// Lengths of compressed pages of programs, as tenths of them do not exceed them: about what dumps
/// of interpreters and compilers show, with some pages that do not shrink.
const LENGTHS: [f64; 11] =
    [40.0, 180.0, 420.0, 700.0, 960.0, 1230.0, 1520.0, 1850.0, 2280.0, 3000.0, 4096.0];

/// Sizes of one round beside those of the next: many small, as they come, many large. An exponent
/// of what is drawn.
const BIASES: [f64; 3] = [1.0, 2.0, 0.5];

/// Pages.
pub struct Content {
    /// What they are.
    pub name: String,
    /// The pages.
    pub bytes: Memory,
    /// Those that are not the same bytes over and over, by how much they shrink.
    sorted: Vec<usize>,
}

impl Content {
    /// Those of a corpus, or made up.
    ///
    /// # Errors
    /// The file cannot be read, or all its pages are one pattern over and over; no memory.
    pub fn new(corpus: Option<&Path>, random: &mut fastrand::Rng) -> Result<Content> {
        let (name, bytes) = match corpus {
            Some(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                (name.to_string_lossy().into_owned(), crate::page::read(path)?)
            }
            None => ("made up, in sizes as of programs".to_owned(), made_up(random)?),
        };
        let codec = Lz4::new(&Params::default()).context("lz4")?;
        let mut context = codec.context().context("lz4")?;
        let mut room = vec![0; 2 * PAGE_SIZE];
        let mut lengths: Vec<(usize, usize)> = pages(&bytes)
            .take(MOST)
            .enumerate()
            .filter(|(_, page)| page[8..] != page[..PAGE_SIZE - 8])
            .map(|(at, page)| (context.compress(page, &mut room).unwrap_or(PAGE_SIZE), at))
            .collect();
        if lengths.is_empty() {
            bail!("{name}: every page is one pattern over and over");
        }
        lengths.sort_unstable();
        Ok(Content { name, bytes, sorted: lengths.into_iter().map(|(_, at)| at).collect() })
    }

    /// A page for a slot, in a round.
    pub fn draw(&self, round: u32, random: &mut fastrand::Rng) -> usize {
        let part = random.f64();
        let part = part.powf(BIASES[round as usize % BIASES.len()]);
        let at = (part * self.sorted.len() as f64) as usize;
        self.sorted[at.min(self.sorted.len() - 1)]
    }
}

/// Pages that begin with noise, as much as makes them as long as wanted, and go on with zeroes.
fn made_up(random: &mut fastrand::Rng) -> Result<Memory> {
    let mut bytes = Memory::new(MADE_UP * PAGE_SIZE).context("no memory for pages")?;
    for (at, page) in bytes.chunks_exact_mut(PAGE_SIZE).enumerate() {
        let place = at as f64 / (MADE_UP - 1) as f64 * (LENGTHS.len() - 1) as f64;
        let (low, part) = ((place as usize).min(LENGTHS.len() - 2), place.fract());
        let part = if place >= (LENGTHS.len() - 1) as f64 { 1.0 } else { part };
        let length = LENGTHS[low] + (LENGTHS[low + 1] - LENGTHS[low]) * part;
        for word in page[..length as usize / 8 * 8].chunks_exact_mut(8) {
            word.copy_from_slice(&random.u64(..).to_le_bytes());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_draw_different_sizes() {
        let mut random = fastrand::Rng::with_seed(1);
        let content = Content::new(None, &mut random).expect("pages");
        assert_eq!(content.sorted.len(), MADE_UP);
        let mut mean = |round| {
            let drawn = (0..2000).map(|_| content.draw(round, &mut random) as f64);
            drawn.sum::<f64>() / 2000.0
        };
        // Made-up pages are in the order of their sizes.
        let (usual, small, large) = (mean(0), mean(1), mean(2));
        assert!(small < usual * 0.8 && usual < large * 0.8, "{small} {usual} {large}");
    }
}
