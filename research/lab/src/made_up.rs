//! Made-up pages, where there is no dump.

use std::path::Path;

use anyhow::{Context, Result};
use units::PAGE_SIZE;

use crate::page::read;
use crate::sys::Memory;

/// The number of made-up pages.
const MADE_UP: usize = 4096;

/// Deciles of the lengths of compressed pages of programs: about those of dumps of interpreters and
/// compilers, with some pages that do not shrink.
const LENGTHS: [f64; 11] =
    [40.0, 180.0, 420.0, 700.0, 960.0, 1230.0, 1520.0, 1850.0, 2280.0, 3000.0, 4096.0];

/// Reads the pages of a dump, or makes pages up. Returns their name, too.
pub fn or_read(dump: Option<&Path>, random: &mut fastrand::Rng) -> Result<(String, Memory)> {
    match dump {
        Some(path) => {
            let name = path.file_name().unwrap_or(path.as_os_str());
            Ok((name.to_string_lossy().into_owned(), read(path)?))
        }
        None => Ok(("made up, in sizes as of programs".to_owned(), made_up(random)?)),
    }
}

/// Makes pages of noise up to the wanted compressed length, and zeroes after it.
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
