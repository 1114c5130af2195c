//! Figures of a dump: they tell whether it looks like memory.

use std::collections::HashSet;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use units::PAGE_SIZE;
use zcomp::{Compressor, Lz4, Params};

use crate::page;

/// Figures of a dump.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub struct Content {
    /// Pages in it.
    pub pages: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Percentage of pages that are all zero.
    pub zero_percent: f64,
    /// Percentage of pages that repeat one 8-byte pattern, zero or not.
    pub same_filled_percent: f64,
    /// Percentage of pages that are equal to an earlier one.
    pub identical_percent: f64,
    /// Bytes of the file over its bytes after lz4, page by page. A page that does not shrink counts
    /// whole.
    pub lz4_ratio: f64,
}

/// Examines every page of `bytes`, and ignores a rest shorter than a page.
///
/// # Errors
/// No memory for the codec.
pub fn examine(bytes: &[u8]) -> Result<Content> {
    let pages = page::pages(bytes);
    let count = pages.len();
    let (mut zero, mut same, mut identical, mut compressed) = (0_u64, 0_u64, 0_u64, 0_usize);
    let mut seen = HashSet::new();
    let mut context = Lz4::new(&Params::default())?.context()?;
    let mut room = vec![0; 2 * PAGE_SIZE];
    for page in pages {
        zero += u64::from(page.iter().all(|&byte| byte == 0));
        same += u64::from(page[8..] == page[..PAGE_SIZE - 8]);
        identical += u64::from(!seen.insert(page));
        compressed += context.compress(page, &mut room).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
    }
    let percent = |part: u64| round(part as f64 * 100.0 / (count as f64).max(1.0), 2);
    Ok(Content {
        pages: count as u64,
        sha256: Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect(),
        zero_percent: percent(zero),
        same_filled_percent: percent(same),
        identical_percent: percent(identical),
        lz4_ratio: round((count * PAGE_SIZE) as f64 / (compressed as f64).max(1.0), 3),
    })
}

/// Rounds `number` to this many digits after the point.
fn round(number: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests;
