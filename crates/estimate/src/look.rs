//! A look at the pages of a sample, and what was found there.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;

use rustix::io::Errno;
use units::PAGE_SIZE;
use zcomp::same_filled;

use crate::codec::{Codec, Costs, Trial, Tried};
use crate::error::Error;
use crate::sample::CLUSTER;
use crate::source::Source;
use crate::tally::{Mean, Tally};
use crate::tier::{Found, TIERS, TierTrial};

/// What was found in the sample of a source.
pub(crate) struct Sums {
    pub pages: u64,
    pub same_filled: u64,
    pub duplicates: u64,
    /// How often the sample has a page, by its hash.
    equal: HashMap<u64, u32>,
    seen: HashSet<u64>,
    pub codecs: Vec<OfForm>,
    pub tiers: [OfForm; TIERS.len()],
}

/// What pages take in one form.
#[derive(Clone, Copy, Default)]
pub(crate) struct OfForm {
    /// Bytes that pages take.
    stored: Tally,
    /// Pages that were compressed, and the seconds.
    compression: Tally,
    /// Pages that were decompressed, and the seconds.
    decompression: Tally,
}

impl Sums {
    pub fn new(codecs: usize) -> Sums {
        Sums {
            pages: 0,
            same_filled: 0,
            duplicates: 0,
            equal: HashMap::new(),
            seen: HashSet::new(),
            codecs: vec![OfForm::default(); codecs],
            tiers: [OfForm::default(); TIERS.len()],
        }
    }
}

/// What is said of all pages of a source, or of many.
#[derive(Clone, Copy, Default)]
pub(crate) struct Whole {
    pub bytes: f64,
    pub stored: f64,
    /// The square of the error.
    pub error: f64,
    /// Seconds of compression.
    pub cpu: f64,
    /// As in a form.
    pub compression: Tally,
    /// As in a form.
    pub decompression: Tally,
}

impl OfForm {
    /// What is said of `bytes` of pages, of which each takes `table` bytes beside its contents.
    pub fn of(&self, bytes: u64, table: f64) -> Whole {
        let pages = bytes as f64 / PAGE_SIZE as f64;
        let Mean { mean, error } = self.stored.mean(pages).unwrap_or(Mean {
            // Nothing could be read: nothing is promised.
            mean: PAGE_SIZE as f64,
            error: f64::INFINITY,
        });
        let (sampled, cpu) = (self.stored.pages(), self.compression.sum());
        Whole {
            bytes: bytes as f64,
            stored: pages * (mean + table),
            error: if pages == 0.0 { 0.0 } else { (pages * error).powi(2) },
            cpu: if sampled == 0.0 { 0.0 } else { cpu / sampled * pages },
            compression: self.compression,
            decompression: self.decompression,
        }
    }

    /// Adds what was found in a cluster of this many pages.
    fn add(&mut self, pages: usize, found: Found) {
        self.stored.add(pages as f64, found.stored);
        for (tally, (pages, time)) in [
            (&mut self.compression, found.compression),
            (&mut self.decompression, found.decompression),
        ] {
            if pages > 0 {
                tally.add(pages as f64, time.as_secs_f64());
            }
        }
    }
}

impl Whole {
    pub fn plus(self, other: Whole) -> Whole {
        Whole {
            bytes: self.bytes + other.bytes,
            stored: self.stored + other.stored,
            error: self.error + other.error,
            cpu: self.cpu + other.cpu,
            compression: self.compression.plus(other.compression),
            decompression: self.decompression.plus(other.decompression),
        }
    }
}

/// Looks at pages, one cluster after the other.
pub(crate) struct Looker {
    trials: Vec<Trial>,
    tiers: TierTrial,
    costs: Costs,
    hashes: RandomState,
    buffer: Vec<u8>,
    seen: HashSet<u64>,
    /// Pages whose contents another page of the sample has, over all sources.
    pub duplicates: u64,
}

impl Looker {
    pub fn new(codecs: &[Codec]) -> Result<Looker, Error> {
        let wrong = |error: zcomp::CodecError| {
            Error::new("cannot try a codec", io::Error::other(error.to_string()))
        };
        if codecs.is_empty() {
            return Err(Error::new("no codec is named", Errno::INVAL));
        }
        Ok(Looker {
            trials: codecs.iter().map(Trial::new).collect::<Result<_, _>>().map_err(wrong)?,
            tiers: TierTrial::new().map_err(wrong)?,
            costs: Costs::new(),
            hashes: RandomState::new(),
            buffer: vec![0; CLUSTER as usize],
            seen: HashSet::new(),
            duplicates: 0,
        })
    }

    /// Counts equal pages. It comes before the first look at the source: by the time pages are
    /// packed, all that are equal share an object.
    pub fn count(&mut self, source: &Source, start: u64, end: u64, sums: &mut Sums) {
        let buffer = &mut self.buffer[..(end - start) as usize];
        let read = source.read(start, buffer);
        let (pages, _) = buffer[..read].as_chunks::<PAGE_SIZE>();
        for page in pages.iter().filter(|page| same_filled(page).is_none()) {
            *sums.equal.entry(self.hashes.hash_one(page)).or_default() += 1;
        }
    }

    /// Compresses the pages of a cluster in all forms.
    pub fn look(&mut self, source: &Source, start: u64, end: u64, sums: &mut Sums) {
        let buffer = &mut self.buffer[..(end - start) as usize];
        let read = source.read(start, buffer);
        let (pages, _) = buffer[..read].as_chunks::<PAGE_SIZE>();
        if pages.is_empty() {
            return;
        }
        let mut found = vec![Found::default(); self.trials.len()];
        self.tiers.begin();
        for page in pages {
            sums.pages += 1;
            if same_filled(page).is_some() {
                sums.same_filled += 1;
                continue;
            }
            let hash = self.hashes.hash_one(page);
            sums.duplicates += u64::from(!sums.seen.insert(hash));
            self.duplicates += u64::from(!self.seen.insert(hash));
            let mut hot = Tried::default();
            for (n, (trial, found)) in self.trials.iter_mut().zip(&mut found).enumerate() {
                let tried = trial.try_page(page);
                found.add(tried, self.costs.of(tried.bytes));
                if n == 0 {
                    hot = tried;
                }
            }
            let equal = sums.equal.get(&hash).copied().unwrap_or(1);
            self.tiers.add(&self.costs, page, hot, equal);
        }
        for (sum, found) in sums.codecs.iter_mut().zip(found) {
            sum.add(pages.len(), found);
        }
        for (sum, found) in sums.tiers.iter_mut().zip(self.tiers.end(&self.costs)) {
            sum.add(pages.len(), found);
        }
    }
}
