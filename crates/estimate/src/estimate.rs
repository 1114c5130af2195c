//! The estimate of a number of sources.

use rustix::io::Errno;
use serde::Serialize;
use units::PAGE_SIZE;

use crate::codec::Codec;
use crate::error::Error;
use crate::look::{Looker, Sums, Whole};
use crate::process::Frames;
use crate::resident::Resident;
use crate::sample::Choice;
use crate::source::Source;
use crate::tally::Mean;
use crate::tier::{TIERED, TIERS};

/// The memory that says of a page where its object is, in bytes: the slot of a disk.
const SLOT: f64 = 8.0;

/// How an estimate is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The codecs that are compared, one at least. The first is that of the hot tier.
    pub codecs: Vec<Codec>,
    /// About how many bytes are read of all sources together; of each, 4 MiB at the least.
    pub sample: u64,
    /// Chooses the sample.
    pub seed: u64,
}

/// What storing pages in some form would take.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Stored {
    /// The memory that the pages would take, with fragmentation and tables, in bytes.
    pub stored_bytes: u64,
    /// How far `stored_bytes` may be from the truth, 95 times of 100; `None` if the sample is too
    /// small to say.
    pub error_bytes: Option<u64>,
    /// Bytes of pages for each byte that they would take.
    pub ratio: f64,
    /// The memory that becomes free.
    pub freed_bytes: u64,
    /// The time to compress a page that is compressed, in microseconds.
    pub compression_us: f64,
    /// How far the mean of `compression_us` may be off, 95 times of 100; `None` as for the bytes.
    pub compression_error_us: Option<f64>,
    /// The time to decompress a page, in microseconds.
    pub decompression_us: f64,
    /// How far the mean of `decompression_us` may be off, 95 times of 100; `None` as for the bytes.
    pub decompression_error_us: Option<f64>,
    /// The CPU time to compress all pages once, in seconds.
    pub cpu_seconds: f64,
}

/// What storing pages with a codec would take.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct ByCodec {
    /// The codec.
    pub codec: String,
    /// What it would take.
    #[serde(flatten)]
    pub stored: Stored,
}

/// What pages would take on a disk with tiers (`--auto`) once all have moved to a tier. Times of
/// the tier `cold` are those of pages in extents: of a page to compress its extent, in all ways
/// that are tried, and of a page to read it alone.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct ByTier {
    /// `hot`, `warm` or `cold`.
    pub tier: &'static str,
    /// What it would take, with the tables of tiers. Equal pages share an object in the tiers
    /// `warm` and `cold` if they are of one source and both in the sample; a smaller sample finds
    /// fewer of them, which `error_bytes` does not know.
    #[serde(flatten)]
    pub stored: Stored,
}

/// The estimate of one source.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Estimate {
    /// The number of the process.
    pub pid: Option<i32>,
    /// The program, or the path of a file.
    pub name: String,
    /// The memory that could be swapped out, in bytes.
    pub resident_bytes: u64,
    /// Of these, bytes in frames that no source before shares.
    pub own_bytes: u64,
    /// What was read of them.
    pub sampled_bytes: u64,
    /// The part of the pages that is the same eight bytes over and over, 0 to 1.
    pub same_filled: f64,
    /// The part of the sampled pages, 0 to 1, that are neither same-filled nor the first of their
    /// contents in the sample. A smaller sample finds fewer of them. Each is stored all the same.
    pub duplicates: f64,
    /// By codec, in the order of the options.
    pub codecs: Vec<ByCodec>,
    /// By tier, the hot one first.
    pub tiers: Vec<ByTier>,
}

/// The sum over sources. Frames that several sources share count once.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Sum {
    /// As in [`Estimate`].
    pub resident_bytes: u64,
    /// As in [`Estimate`].
    pub sampled_bytes: u64,
    /// As in [`Estimate`].
    pub same_filled: f64,
    /// As in [`Estimate`], and of all sources together.
    pub duplicates: f64,
    /// By codec, in the order of the options.
    pub codecs: Vec<ByCodec>,
    /// By tier, the hot one first.
    pub tiers: Vec<ByTier>,
}

/// An estimate.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Report {
    /// Of each source with memory, in their order.
    pub sources: Vec<Estimate>,
    /// Of all together.
    pub sum: Sum,
    /// What chose the sample.
    pub seed: u64,
}

/// Estimates what the pages of the sources would take. It calls `progress` with the bytes that were
/// read, and those that will be. `left_out` is told of sources that cannot be read.
///
/// # Errors
/// [`Error`] if no codec is named, or if one cannot begin for want of memory.
pub fn estimate(
    sources: &[Source],
    options: &Options,
    left_out: &mut dyn FnMut(Error),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, Error> {
    let mut frames = Frames::default();
    let mut there: Vec<(&Source, Resident)> = Vec::new();
    for source in sources {
        let resident = match source {
            Source::Process(process) => process.resident(&mut frames),
            Source::Image(image) => Ok(image.resident()),
        };
        match resident {
            Ok(resident) if resident.bytes > 0 => there.push((source, resident)),
            Ok(_) => {}
            Err(error) => left_out(error),
        }
    }
    drop(frames);
    let total: u64 = there.iter().map(|it| it.1.bytes).sum();
    let mut looker = Looker::new(&options.codecs)?;
    let (mut found, mut of_sources, mut done) = (Vec::new(), Vec::new(), 0);
    for (n, (source, resident)) in there.into_iter().enumerate() {
        let seed = options.seed.wrapping_add((n as u64) << 48);
        let choice = Choice::new(seed, options.sample, total, resident.bytes);
        let mut sums = Sums::new(options.codecs.len());
        let chosen = || resident.runs.iter().flat_map(|run| choice.parts(run.start, run.end));
        chosen().for_each(|(start, end)| looker.count(source, start, end, &mut sums));
        for run in &resident.runs {
            for (start, end) in choice.parts(run.start, run.end) {
                looker.look(source, start, end, &mut sums);
                done += end - start;
            }
            progress(done, options.sample.min(total).max(done));
        }
        if sums.pages == 0 {
            // The process has ended meanwhile.
            left_out(Error::new(format!("cannot read {}", source.name()), Errno::SRCH));
            continue;
        }
        found.push((source, resident));
        of_sources.push(sums);
    }
    let names: Vec<&str> = options.codecs.iter().map(Codec::name).collect();
    let sources = found.iter().zip(&of_sources).map(|((source, resident), sums)| Estimate {
        pid: source.pid(),
        name: source.name().to_owned(),
        resident_bytes: resident.bytes,
        own_bytes: resident.own,
        sampled_bytes: sums.pages * PAGE_SIZE as u64,
        same_filled: part(sums.same_filled, sums.pages),
        duplicates: part(sums.duplicates, sums.pages),
        codecs: names
            .iter()
            .zip(&sums.codecs)
            .map(|(name, sum)| by_codec(name, sum.of(resident.bytes, SLOT)))
            .collect(),
        tiers: TIERS
            .iter()
            .zip(&sums.tiers)
            .map(|(tier, sum)| by_tier(tier, sum.of(resident.bytes, SLOT + TIERED)))
            .collect(),
    });
    let sources = sources.collect();
    let sum = sum(&names, &found, &of_sources, looker.duplicates);
    Ok(Report { sources, sum, seed: options.seed })
}

fn sum(names: &[&str], found: &[(&Source, Resident)], sums: &[Sums], duplicates: u64) -> Sum {
    let own = |n: usize| found[n].1.own;
    let resident_bytes: u64 = (0..found.len()).map(own).sum();
    let pages = sums.iter().map(|it| it.pages).sum();
    let same_filled: f64 = sums
        .iter()
        .enumerate()
        .map(|(n, sums)| part(sums.same_filled, sums.pages) * own(n) as f64)
        .sum();
    let all = |of: &dyn Fn(usize, &Sums) -> Whole| {
        sums.iter().enumerate().map(|(n, sums)| of(n, sums)).fold(Whole::default(), Whole::plus)
    };
    let codecs = names
        .iter()
        .enumerate()
        .map(|(codec, name)| by_codec(name, all(&|n, sums| sums.codecs[codec].of(own(n), SLOT))));
    let tiers = TIERS.iter().enumerate().map(|(tier, name)| {
        by_tier(name, all(&|n, sums| sums.tiers[tier].of(own(n), SLOT + TIERED)))
    });
    Sum {
        resident_bytes,
        sampled_bytes: pages * PAGE_SIZE as u64,
        same_filled: if resident_bytes == 0 { 0.0 } else { same_filled / resident_bytes as f64 },
        duplicates: part(duplicates, pages),
        codecs: codecs.collect(),
        tiers: tiers.collect(),
    }
}

fn part(some: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}

fn by_codec(name: &str, whole: Whole) -> ByCodec {
    ByCodec { codec: name.to_owned(), stored: told(whole) }
}

fn by_tier(tier: &'static str, whole: Whole) -> ByTier {
    ByTier { tier, stored: told(whole) }
}

fn told(whole: Whole) -> Stored {
    let us = |seconds: Option<Mean>| seconds.map_or(0.0, |it| it.mean * 1e6);
    let error_us = |seconds: Option<Mean>| match seconds {
        Some(Mean { error, .. }) => error.is_finite().then_some(error * 1e6),
        None => None,
    };
    let [compression, decompression] =
        [whole.compression, whole.decompression].map(|it| it.mean(f64::INFINITY));
    let error = whole.error.sqrt();
    Stored {
        stored_bytes: whole.stored.round() as u64,
        error_bytes: error.is_finite().then_some(error.round() as u64),
        ratio: if whole.stored == 0.0 { 0.0 } else { whole.bytes / whole.stored },
        freed_bytes: (whole.bytes - whole.stored).max(0.0).round() as u64,
        compression_us: us(compression),
        compression_error_us: error_us(compression),
        decompression_us: us(decompression),
        decompression_error_us: error_us(decompression),
        cpu_seconds: whole.cpu,
    }
}
