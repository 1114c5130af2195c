//! A dump, and the times of single reads of its pages.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use units::{PAGE_SIZE, Page};

use crate::page;

/// The seed of all that is drawn at random.
pub const SEED: u64 = 1;

pub struct Corpus<'a> {
    pub name: String,
    pub bytes: &'a [u8],
    pub pages: usize,
}

impl Corpus<'_> {
    pub fn page(&self, index: usize) -> &Page {
        page::page(self.bytes, index)
    }

    /// Compares a page that came back.
    pub fn check(&self, index: usize, found: &[u8]) -> Result<()> {
        if found[..PAGE_SIZE] != self.page(index)[..] {
            bail!("page {index} of {} is not what was stored", self.name);
        }
        Ok(())
    }
}

/// The times of single reads in microseconds: the median and the 99th percentile, null if there are
/// none.
pub fn percentiles(mut times: Vec<f64>) -> Value {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
    json!({ "p50": at(50), "p99": at(99) })
}
