//! The contents that threads write: prepared in memory before the clock starts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use units::PAGE_SIZE;

use crate::page::page_mut;
use crate::page::read;
use crate::sys::{Memory, memory};

/// Bytes of generated contents: more than a cache holds, as in fio's stream of buffers.
const GENERATED: usize = 64 << 20;
/// The seed of generated contents, and of the order of pages.
const SEED: u64 = 0x636f_6e74_656e_7473;
/// The byte that iozone writes.
const IOZONE: u8 = 0x5f;
/// Distance between the bytes that iozone writes where it touches a buffer: its cache line.
const IOZONE_LINE: usize = 32;
/// Pages of iozone's contents: four records of 16 KiB with touched pages, twelve without.
const IOZONE_PAGES: usize = 64;

/// Number of same-filled pages: one for each byte value.
const FILLED_PAGES: usize = 256;

/// A kind of contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Nearly empty pages, byte by byte those of iozone 3.489 in throughput mode: eight bytes 0x5f
    /// and zeroes. In every fourth block of 64 KiB each 32nd byte is 0x5f, too. Other pages do not
    /// occur.
    Iozone,
    /// Each page is half noise and half zeroes, as fio makes with buffer_compress_percentage=50,
    /// buffer_compress_chunk=4096 and refill_buffers.
    Half,
    /// Noise: fio's refill_buffers without a percentage, as in the tables of 2014.
    Random,
    /// Each page repeats one byte: 256 pages, the first of zeroes.
    SameFilled,
    /// The pages of a file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// Whether the pages are shuffled, the same way each time.
        shuffled: bool,
    },
}

impl Content {
    /// Parses the command line: a name, or the path of a file.
    pub fn parse(text: &str, shuffled: bool) -> Result<Content> {
        let content = match text {
            "iozone" => Content::Iozone,
            "half" => Content::Half,
            "random" => Content::Random,
            "filled" => Content::SameFilled,
            path if Path::new(path).exists() => {
                return Ok(Content::File { path: path.into(), shuffled });
            }
            other => bail!(
                "--content {other}: no such file, and none of the contents made here: iozone, \
                 half, random, filled"
            ),
        };
        if shuffled {
            bail!("--shuffle is for the pages of a file; {text} has none");
        }
        Ok(content)
    }

    /// The name in results: for a file, the file name without directories.
    pub fn name(&self) -> String {
        match self {
            Content::Iozone => "iozone".to_owned(),
            Content::Half => "half".to_owned(),
            Content::Random => "random".to_owned(),
            Content::SameFilled => "filled".to_owned(),
            Content::File { path, shuffled } => {
                let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                format!("{name}{}", if *shuffled { " shuffled" } else { "" })
            }
        }
    }

    /// Makes the contents: a whole number of blocks of `block` bytes. `wanted` blocks are enough.
    pub fn prepare(&self, block: usize, wanted: usize) -> Result<Source> {
        let room = |bytes: usize| memory(bytes).context("no memory for the contents");
        let generated = (wanted.max(1) * block).min(GENERATED);
        let memory = match self {
            Content::Iozone => {
                let mut memory = room(IOZONE_PAGES * PAGE_SIZE)?;
                for index in 0..IOZONE_PAGES {
                    let page = page_mut(&mut memory, index);
                    page[..8].fill(IOZONE);
                    if index < IOZONE_PAGES / 4 {
                        page.iter_mut().step_by(IOZONE_LINE).for_each(|byte| *byte = IOZONE);
                    }
                }
                memory
            }
            Content::Half => noise(room(generated)?, PAGE_SIZE / 2),
            Content::Random => noise(room(generated)?, PAGE_SIZE),
            Content::SameFilled => {
                let mut memory = room(FILLED_PAGES * PAGE_SIZE)?;
                for index in 0..FILLED_PAGES {
                    page_mut(&mut memory, index).fill(index as u8);
                }
                memory
            }
            Content::File { path, shuffled } => {
                let file = read(path)?;
                if file.len() < block {
                    bail!("{} has not even {block} bytes: one block", path.display());
                }
                if *shuffled { shuffle(&file, room(file.len())?) } else { file }
            }
        };
        Ok(Source { memory, block })
    }
}

/// Makes this many half-compressible pages, all different.
pub fn half_compressible(pages: usize) -> Result<Memory> {
    let memory = memory(pages * PAGE_SIZE).context("no memory for the contents")?;
    Ok(noise(memory, PAGE_SIZE / 2))
}

/// Fills the first `bytes` bytes of each page with noise.
fn noise(mut memory: Memory, bytes: usize) -> Memory {
    let mut random = fastrand::Rng::with_seed(SEED);
    for page in memory.chunks_exact_mut(PAGE_SIZE) {
        for word in page[..bytes].chunks_exact_mut(8) {
            word.copy_from_slice(&random.u64(..).to_le_bytes());
        }
    }
    memory
}

fn shuffle(file: &[u8], mut into: Memory) -> Memory {
    let mut order: Vec<usize> = (0..file.len() / PAGE_SIZE).collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut order);
    for (place, &index) in order.iter().enumerate() {
        let from = &file[index * PAGE_SIZE..][..PAGE_SIZE];
        page_mut(&mut into, place).copy_from_slice(from);
    }
    into
}

/// Contents in memory, in blocks.
pub struct Source {
    memory: Memory,
    block: usize,
}

impl Source {
    pub fn blocks(&self) -> usize {
        self.memory.len() / self.block
    }

    /// Block `index`, which begins at a page boundary. Panics if `index` is out of range.
    #[inline]
    pub fn block(&self, index: usize) -> &[u8] {
        &self.memory[index * self.block..][..self.block]
    }
}

#[cfg(test)]
mod tests;
