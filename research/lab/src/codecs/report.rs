//! The results of a run: table, JSON and picture.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use units::PAGE_SIZE;

use super::contest::{Contestant, Taken};
use super::kernel::Size;
use crate::level::named;
use crate::plot::Bars;
use crate::statistics::{median, spread};
use crate::table::{self, maybe, maybe_count};

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

    /// The results as text.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} pages of 4 KiB of {}, {} of one pattern left out; medians of {} round(s) and their \
             spread, ns of CPU per page\n",
            self.pages, self.corpus, self.same_filled_left_out, self.rounds
        );
        let mut table = table::table([
            "codec",
            "compress",
            "spread",
            "/liblzo2",
            "decompress",
            "spread",
            "/liblzo2",
            "ratio",
            "kernel's",
            "size/kernel",
        ]);
        for row in &self.codecs {
            let kernel = row.kernel.as_ref();
            table.add_row([
                row.title(),
                format!("{:.0}", row.compress_cpu_ns),
                range(&row.samples.compress_cpu_ns),
                maybe(row.compress_over_liblzo2, 3),
                format!("{:.0}", row.decompress_cpu_ns),
                range(&row.samples.decompress_cpu_ns),
                maybe(row.decompress_over_liblzo2, 3),
                format!("{:.3}", row.ratio),
                maybe_count(kernel.map(|kernel| kernel.bytes)),
                maybe(kernel.map(|kernel| kernel.ours_over_kernel), 3),
            ]);
        }
        text.push_str(&table::text(table, &[0]));
        text
    }

    /// Bars of compression and decompression, side by side.
    pub fn bars(&self) -> Bars {
        let groups = ["compress", "decompress"].map(str::to_owned).to_vec();
        let series = self.codecs.iter().map(|row| {
            let name = format!("{}, ratio {:.2}", row.title(), row.ratio);
            (name, vec![row.compress_cpu_ns, row.decompress_cpu_ns])
        });
        Bars {
            title: format!("{} pages of 4 KiB of {}", self.pages, self.corpus),
            unit: "ns of CPU per page".to_owned(),
            groups,
            series: series.collect(),
        }
    }
}

impl Row {
    fn title(&self) -> String {
        named(&self.name, self.level)
    }
}

/// The least and the greatest value.
fn range(values: &[f64]) -> String {
    let [least, most] = spread(values);
    format!("{least:.0}-{most:.0}")
}
