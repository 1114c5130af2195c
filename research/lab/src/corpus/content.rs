//! Figures of a dump: they tell whether it looks like memory.

use std::collections::HashSet;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use units::PAGE_SIZE;
use zcomp::{Compressor, Lz4, Params};

use crate::page;

/// Examines every page of `bytes`, and ignores a rest shorter than a page. Adds to `entry`: pages;
/// the SHA-256 of the file; the percentages of pages that are all zero, that repeat one 8-byte
/// pattern, zero or not, and that are equal to an earlier one; and bytes over bytes after lz4, page
/// by page. A page that does not shrink counts whole.
pub fn examine(bytes: &[u8], entry: &mut Value) -> Result<()> {
    let pages = page::pages(bytes);
    let count = pages.len();
    let (mut zero, mut same, mut identical, mut compressed) = (0_u64, 0_u64, 0_u64, 0_usize);
    let mut seen = HashSet::new();
    let mut context = Lz4::new(&Params::default())?.context()?;
    let mut room = vec![0; 2 * PAGE_SIZE];
    for page in pages {
        zero += u64::from(page.iter().all(|&byte| byte == 0));
        same += u64::from(zcomp::same_filled(page).is_some());
        identical += u64::from(!seen.insert(page));
        compressed += context.compress(page, &mut room).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
    }
    let percent = |part: u64| round(part as f64 * 100.0 / (count as f64).max(1.0), 2);
    let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    entry["pages"] = json!(count);
    entry["sha256"] = json!(sha256);
    entry["zero_percent"] = json!(percent(zero));
    entry["same_filled_percent"] = json!(percent(same));
    entry["identical_percent"] = json!(percent(identical));
    let ratio = (count * PAGE_SIZE) as f64 / (compressed as f64).max(1.0);
    entry["lz4_ratio"] = json!(round(ratio, 3));
    Ok(())
}

/// Rounds `number` to this many digits after the point.
fn round(number: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests;
