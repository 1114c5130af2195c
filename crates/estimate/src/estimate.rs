//! The estimate of a number of sources.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use serde::Serialize;
use units::{PAGE_SIZE, Page};
use zcomp::same_filled;

use crate::codec::{Codec, Costs, Trial};
use crate::error::Error;
use crate::process::Frames;
use crate::resident::Resident;
use crate::sample::{CLUSTER, Choice};
use crate::source::Source;
use crate::tally::{Mean, Tally};

/// The memory that says of a page where its object is, in bytes: the slot of a disk.
const SLOT: f64 = 8.0;

/// How an estimate is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The codecs that are compared.
    pub codecs: Vec<Codec>,
    /// About how many bytes are read of all sources together; of each, 4 MiB at the least.
    pub sample: u64,
    /// Chooses the sample.
    pub seed: u64,
}

/// What storing pages with a codec would take.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct ByCodec {
    /// The codec.
    pub codec: String,
    /// The memory that the pages would take, with fragmentation and slots, in bytes.
    pub stored_bytes: u64,
    /// How far `stored_bytes` may be from the truth, 95 times of 100; `None` if the sample is too
    /// small to say.
    pub error_bytes: Option<u64>,
    /// Bytes of pages for each byte that they would take.
    pub ratio: f64,
    /// The memory that becomes free.
    pub freed_bytes: u64,
    /// The time to compress a page that is not same-filled, in microseconds.
    pub compression_us: f64,
    /// The time to decompress a page, in microseconds.
    pub decompression_us: f64,
    /// The CPU time to store all pages once, in seconds.
    pub cpu_seconds: f64,
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
/// [`Error`] if a codec cannot begin for want of memory.
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
        for run in &resident.runs {
            for (start, end) in choice.parts(run.start, run.end) {
                looker.look(source, start, end, &mut sums);
                done += end - start;
            }
            progress(done, options.sample.min(total).max(done));
        }
        if sums.pages == 0 {
            // The process has ended meanwhile.
            left_out(Error::new(format!("cannot read {}", source.name()), Errno::ESRCH));
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
            .map(|(name, sum)| sum.of(resident.bytes).by_codec(name))
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
    let codecs = names.iter().enumerate().map(|(codec, name)| {
        let each = sums.iter().enumerate().map(|(n, sums)| sums.codecs[codec].of(own(n)));
        each.fold(Whole::default(), Whole::plus).by_codec(name)
    });
    Sum {
        resident_bytes,
        sampled_bytes: pages * PAGE_SIZE as u64,
        same_filled: if resident_bytes == 0 { 0.0 } else { same_filled / resident_bytes as f64 },
        duplicates: part(duplicates, pages),
        codecs: codecs.collect(),
    }
}

fn part(some: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}

/// What was found in the sample of a source.
struct Sums {
    pages: u64,
    same_filled: u64,
    duplicates: u64,
    seen: HashSet<u64>,
    codecs: Vec<OfCodec>,
}

#[derive(Clone, Default)]
struct OfCodec {
    /// Bytes that pages take.
    stored: Tally,
    /// Pages that were compressed.
    compressed: u64,
    /// Pages that were decompressed.
    decompressed: u64,
    compression: Duration,
    decompression: Duration,
}

impl Sums {
    fn new(codecs: usize) -> Sums {
        let codecs = vec![OfCodec::default(); codecs];
        Sums { pages: 0, same_filled: 0, duplicates: 0, seen: HashSet::new(), codecs }
    }
}

/// What is said of all pages of a source, or of many.
#[derive(Clone, Copy, Default)]
struct Whole {
    bytes: f64,
    stored: f64,
    /// The square of the error.
    error: f64,
    cpu: f64,
    compressed: u64,
    decompressed: u64,
    compression: Duration,
    decompression: Duration,
}

impl OfCodec {
    fn of(&self, bytes: u64) -> Whole {
        let pages = bytes as f64 / PAGE_SIZE as f64;
        let Mean { mean, error } = self.stored.mean(pages).unwrap_or(Mean {
            // Nothing could be read: nothing is promised.
            mean: PAGE_SIZE as f64,
            error: f64::INFINITY,
        });
        let (sampled, cpu) = (self.stored.pages(), self.compression.as_secs_f64());
        Whole {
            bytes: bytes as f64,
            stored: pages * (mean + SLOT),
            error: if pages == 0.0 { 0.0 } else { (pages * error).powi(2) },
            cpu: if sampled == 0.0 { 0.0 } else { cpu / sampled * pages },
            compressed: self.compressed,
            decompressed: self.decompressed,
            compression: self.compression,
            decompression: self.decompression,
        }
    }
}

impl Whole {
    fn plus(self, other: Whole) -> Whole {
        Whole {
            bytes: self.bytes + other.bytes,
            stored: self.stored + other.stored,
            error: self.error + other.error,
            cpu: self.cpu + other.cpu,
            compressed: self.compressed + other.compressed,
            decompressed: self.decompressed + other.decompressed,
            compression: self.compression + other.compression,
            decompression: self.decompression + other.decompression,
        }
    }

    fn by_codec(self, codec: &str) -> ByCodec {
        let us = |time: Duration, pages: u64| match pages {
            0 => 0.0,
            pages => time.as_secs_f64() * 1e6 / pages as f64,
        };
        let error = self.error.sqrt();
        ByCodec {
            codec: codec.to_owned(),
            stored_bytes: self.stored.round() as u64,
            error_bytes: error.is_finite().then_some(error.round() as u64),
            ratio: if self.stored == 0.0 { 0.0 } else { self.bytes / self.stored },
            freed_bytes: (self.bytes - self.stored).max(0.0).round() as u64,
            compression_us: us(self.compression, self.compressed),
            decompression_us: us(self.decompression, self.decompressed),
            cpu_seconds: self.cpu,
        }
    }
}

/// Looks at pages, one cluster after the other.
struct Looker {
    trials: Vec<Trial>,
    costs: Costs,
    hashes: RandomState,
    buffer: Vec<u8>,
    seen: HashSet<u64>,
    /// Pages whose contents another page of the sample has, over all sources.
    duplicates: u64,
}

impl Looker {
    fn new(codecs: &[Codec]) -> Result<Looker, Error> {
        let trials = codecs.iter().map(Trial::new).collect::<Result<_, _>>().map_err(|error| {
            Error::new("cannot try a codec", io::Error::other(error.to_string()))
        })?;
        Ok(Looker {
            trials,
            costs: Costs::new(),
            hashes: RandomState::new(),
            buffer: vec![0; CLUSTER as usize],
            seen: HashSet::new(),
            duplicates: 0,
        })
    }

    fn look(&mut self, source: &Source, start: u64, end: u64, sums: &mut Sums) {
        let buffer = &mut self.buffer[..(end - start) as usize];
        let read = source.read(start, buffer);
        let (pages, _) = buffer[..read].as_chunks::<PAGE_SIZE>();
        if pages.is_empty() {
            return;
        }
        let mut stored = vec![0.0; self.trials.len()];
        for page in pages {
            sums.pages += 1;
            if same_filled(page).is_some() {
                sums.same_filled += 1;
                continue;
            }
            let hash = self.hashes.hash_one(page);
            sums.duplicates += u64::from(!sums.seen.insert(hash));
            self.duplicates += u64::from(!self.seen.insert(hash));
            try_all(&mut self.trials, &self.costs, page, &mut sums.codecs, &mut stored);
        }
        for (sum, stored) in sums.codecs.iter_mut().zip(stored) {
            sum.stored.add(pages.len() as f64, stored);
        }
    }
}

fn try_all(
    trials: &mut [Trial],
    costs: &Costs,
    page: &Page,
    sums: &mut [OfCodec],
    stored: &mut [f64],
) {
    for ((trial, sum), stored) in trials.iter_mut().zip(sums).zip(stored) {
        let tried = trial.try_page(page);
        *stored += costs.of(tried.bytes);
        sum.compressed += 1;
        sum.decompressed += u64::from(tried.bytes < PAGE_SIZE);
        sum.compression += tried.compression;
        sum.decompression += tried.decompression;
    }
}
