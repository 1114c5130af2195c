//! The results of a run.

use std::path::Path;

use serde::Serialize;
use units::PAGE_SIZE;

use super::contest::{Contestant, Taken};
use super::kernel::Size;
use crate::statistics::median;

/// The results. Each time is the median of the rounds.
#[derive(Serialize)]
pub struct Report {
    corpus: String,
    pages: usize,
    /// Same-filled pages, which no store compresses.
    same_filled_left_out: usize,
    rounds: usize,
    codecs: Vec<Row>,
}

/// The results of one codec.
#[derive(Serialize)]
struct Row {
    name: String,
    level: Option<i32>,
    /// Whether it is not one of rampack's codecs.
    peer: bool,
    compress_ns: f64,
    decompress_ns: f64,
    compress_cpu_ns: f64,
    decompress_cpu_ns: f64,
    samples: Samples,
    /// Bytes of all pages. A page that did not shrink counts whole.
    bytes: u64,
    ratio: f64,
    /// The median of the rounds' ratios: within a round the two codecs run side by side.
    compress_over_liblzo2: Option<f64>,
    decompress_over_liblzo2: Option<f64>,
    kernel: Option<Kernel>,
    #[serde(skip)]
    lengths: Vec<u16>,
}

/// Nanoseconds of CPU time for a page, one value for each round.
#[derive(Serialize)]
struct Samples {
    compress_cpu_ns: Vec<f64>,
    decompress_cpu_ns: Vec<f64>,
}

/// The results of the kernel's codec of the same name, on the same pages.
#[derive(Serialize)]
struct Kernel {
    bytes: u64,
    huge_pages: u64,
    /// Our bytes over the kernel's. As many of our longest pages as the kernel has huge pages count
    /// as whole pages.
    ours_over_kernel: f64,
}

impl Report {
    /// Makes the report from the contestants' results.
    pub fn new(corpus: &Path, pages: usize, left_out: usize, contestants: &[Contestant]) -> Report {
        let peer = contestants.iter().find(|contestant| contestant.is_peer);
        let row = |contestant: &Contestant| {
            let time = |taken: &[Taken], of: fn(&Taken) -> f64| median(taken.iter().map(of));
            let over = |of: fn(&Contestant) -> &[Taken]| {
                let theirs = of(peer?);
                let both = of(contestant).iter().zip(theirs);
                Some(median(both.map(|(ours, theirs)| ours.cpu / theirs.cpu)))
            };
            let bytes = contestant.bytes();
            Row {
                name: contestant.name.clone(),
                level: contestant.level,
                peer: contestant.is_peer,
                compress_ns: time(&contestant.compress, |taken| taken.wall),
                decompress_ns: time(&contestant.decompress, |taken| taken.wall),
                compress_cpu_ns: time(&contestant.compress, |taken| taken.cpu),
                decompress_cpu_ns: time(&contestant.decompress, |taken| taken.cpu),
                samples: Samples {
                    compress_cpu_ns: contestant.compress.iter().map(|taken| taken.cpu).collect(),
                    decompress_cpu_ns: contestant.decompress.iter().map(|t| t.cpu).collect(),
                },
                bytes,
                ratio: (pages * PAGE_SIZE) as f64 / bytes as f64,
                compress_over_liblzo2: over(|contestant| &contestant.compress),
                decompress_over_liblzo2: over(|contestant| &contestant.decompress),
                kernel: None,
                lengths: contestant.lengths.clone(),
            }
        };
        Report {
            corpus: corpus.display().to_string(),
            pages,
            same_filled_left_out: left_out,
            rounds: contestants.first().map_or(0, |contestant| contestant.compress.len()),
            codecs: contestants.iter().map(row).collect(),
        }
    }

    /// Adds the sizes of the kernel's codecs on the same pages.
    pub fn add_kernel(&mut self, sizes: Vec<Size>) {
        for size in sizes {
            let same = |row: &&mut Row| row.name == size.name && row.level.is_none() && !row.peer;
            let Some(row) = self.codecs.iter_mut().find(same) else { continue };
            let mut lengths = row.lengths.clone();
            lengths.sort_unstable_by(|a, b| b.cmp(a));
            let huge = (size.huge_pages as usize).min(lengths.len());
            lengths[..huge].fill(PAGE_SIZE as u16);
            let ours: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
            row.kernel = Some(Kernel {
                bytes: size.bytes,
                huge_pages: size.huge_pages,
                ours_over_kernel: ours as f64 / size.bytes as f64,
            });
        }
    }
}
