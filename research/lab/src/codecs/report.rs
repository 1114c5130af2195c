//! The results of a run.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use units::PAGE_SIZE;

use super::Contestant;
use super::kernel::Size;
use crate::pages::work::{Speed, Work};
use crate::statistics::median;

fn cpu(speeds: &[Speed]) -> Vec<f64> {
    speeds.iter().filter_map(|speed| speed.cpu_ns_per_page).collect()
}

/// All results. Each time is the median of the rounds, in nanoseconds for a page.
pub fn json(
    corpus: &Path,
    work: &Work<'_>,
    left_out: usize,
    contestants: &[Contestant],
    kernel: &[Size],
) -> Result<Value> {
    let peer = contestants.iter().find(|contestant| contestant.is_peer);
    let row = |one: &Contestant| {
        let wall = |speeds: &[Speed]| median(speeds.iter().map(|speed| speed.ns_per_page));
        // The median of the rounds' ratios: within a round the two codecs run side by side.
        let over = |of: fn(&Contestant) -> &[Speed]| {
            let both = cpu(of(one)).into_iter().zip(cpu(of(peer?)));
            Some(median(both.map(|(ours, theirs)| ours / theirs)))
        };
        let lengths = one.codec.lengths(work)?;
        let bytes: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let size = kernel.iter().find(|size| one.name == size.name);
        let size = size.filter(|_| one.level.is_none() && !one.is_peer);
        Ok(json!({
            "name": one.name,
            "level": one.level,
            "peer": one.is_peer,
            "compress_ns": wall(&one.compress),
            "decompress_ns": wall(&one.decompress),
            "compress_cpu_ns": median(cpu(&one.compress)),
            "decompress_cpu_ns": median(cpu(&one.decompress)),
            "samples": {
                "compress_cpu_ns": cpu(&one.compress),
                "decompress_cpu_ns": cpu(&one.decompress),
            },
            "bytes": bytes,
            "ratio": work.corpus().len() as f64 / bytes as f64,
            "compress_over_liblzo2": over(|one| &one.compress),
            "decompress_over_liblzo2": over(|one| &one.decompress),
            "kernel": size.map(|size| beside(lengths, size)),
        }))
    };
    Ok(json!({
        "corpus": corpus.display().to_string(),
        "pages": work.pages(),
        "same_filled_left_out": left_out,
        "rounds": contestants.first().map_or(0, |one| one.compress.len()),
        "codecs": contestants.iter().map(row).collect::<Result<Vec<Value>>>()?,
    }))
}

/// The kernel's codec of the same name, on the same pages. As many of our longest pages as the
/// kernel has huge pages count as whole pages.
fn beside(mut lengths: Vec<u16>, size: &Size) -> Value {
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let huge = (size.huge_pages as usize).min(lengths.len());
    lengths[..huge].fill(PAGE_SIZE as u16);
    let ours: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
    json!({
        "bytes": size.bytes,
        "huge_pages": size.huge_pages,
        "ours_over_kernel": ours as f64 / size.bytes as f64,
    })
}
