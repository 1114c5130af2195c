//! The tiers of a disk whose pages move by themselves, and what pages cost there.
//!
//! The rules are those of the crate `zram` (`tiering/moves.rs` and `engine/packing.rs`). Only the
//! order of neighbours is an assumption: extents are of neighbours on the disk, and here neighbours
//! are those by address or by place in the file.

use std::ops::Range;
use std::time::{Duration, Instant};

use tiers::{COLD, OUT, QUICK_LEVEL, THOROUGH_LEVEL, TIERS as FORMS, WARM, WARM_CODEC};
use units::{PAGE_SIZE, Page};
use zcomp::{CodecError, EXTENT_PAGES, ExtentPacker};

use crate::codec::{Codec, Costs, Trial, Tried};
use crate::sample::CLUSTER;

const _: () = assert!(CLUSTER as usize == EXTENT_PAGES * PAGE_SIZE);

/// The tiers, the hot one first.
pub(crate) const TIERS: [&str; OUT] = [FORMS[0].name, FORMS[WARM].name, FORMS[COLD].name];

/// The memory that a disk with tiers takes for each page beside its slot, in bytes: the time of
/// last use (4), what is remembered of its moves (4), and the word of its fingerprint (4).
pub(crate) const TIERED: f64 = 12.0;
/// The memory of an entry: of an extent, or of an object that equal pages share.
const ENTRY: usize = 16;
/// An extent is smaller than a page.
const MOST: usize = PAGE_SIZE - 1;

/// What was found of the pages of a cluster in one form.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Found {
    /// The bytes that they take.
    pub stored: f64,
    /// Pages that were compressed, and how long it took.
    pub compression: (u32, Duration),
    /// Pages that were decompressed, and how long it took.
    pub decompression: (u32, Duration),
}

impl Found {
    /// Adds a page that takes so much.
    pub fn add(&mut self, tried: Tried, stored: f64) {
        self.stored += stored;
        let is_compressed = u32::from(tried.bytes < PAGE_SIZE);
        let (compression, decompression) = (&mut self.compression, &mut self.decompression);
        *compression = (compression.0 + 1, compression.1 + tried.compression);
        *decompression = (decompression.0 + is_compressed, decompression.1 + tried.decompression);
    }
}

/// What tries the tiers with one cluster after the other.
pub(crate) struct TierTrial {
    warm: Trial,
    packer: ExtentPacker,
    /// The pages of the cluster that may be packed, one behind the other.
    members: Vec<u8>,
    /// The bytes of the object that each of them has.
    objects: Vec<usize>,
    /// What was compressed last, its pages and its bytes.
    output: Box<[u8; MOST]>,
    last: Option<(Range<usize>, usize)>,
    found: [Found; TIERS.len()],
}

impl TierTrial {
    pub fn new() -> Result<TierTrial, CodecError> {
        let (name, level) = WARM_CODEC;
        let warm = Trial::new(&Codec::parse(&format!("{name}:{level}"))?)?;
        let packer = warm.packer(QUICK_LEVEL, THOROUGH_LEVEL)?;
        Ok(TierTrial {
            warm,
            packer,
            members: Vec::with_capacity(CLUSTER as usize),
            objects: Vec::with_capacity(EXTENT_PAGES),
            output: Box::new([0; MOST]),
            last: None,
            found: Default::default(),
        })
    }

    /// Begins a cluster.
    pub fn begin(&mut self) {
        self.members.clear();
        self.objects.clear();
        self.last = None;
        self.found = Default::default();
    }

    /// Adds the next page of the cluster, which is not same-filled. It takes `hot`, and the sample
    /// has `equal` pages with its contents.
    pub fn add(&mut self, costs: &Costs, page: &Page, hot: Tried, equal: u32) {
        self.found[0].add(hot, costs.of(hot.bytes));
        let warm = self.warm.try_page(page);
        // What does not get into a smaller size class stays as it is.
        let is_smaller = costs.class(warm.bytes) < costs.class(hot.bytes);
        let bytes = if is_smaller { warm.bytes } else { hot.bytes };
        if equal > 1 {
            // Each bears its part of the one object. What shares is never packed.
            let stored = (costs.of(bytes) + ENTRY as f64) / f64::from(equal);
            self.found[1].stored += stored;
            self.found[2].stored += stored;
            return;
        }
        let read = if is_smaller { warm } else { hot };
        self.found[1].add(Tried { compression: warm.compression, ..read }, costs.of(bytes));
        self.members.extend_from_slice(page);
        self.objects.push(bytes);
    }

    /// Ends a cluster: packs its pages, and returns what was found, tier by tier.
    pub fn end(&mut self, costs: &Costs) -> [Found; TIERS.len()] {
        let runs = self.pack(costs);
        for (n, bytes) in self.objects.iter().enumerate() {
            if !runs.iter().any(|run| run.contains(&n)) {
                self.found[2].stored += costs.of(*bytes);
            }
        }
        for run in runs {
            self.make(costs, run);
        }
        self.found
    }

    /// The runs of pages that become extents: all pages as one if they take less memory then. Or
    /// else all but the last or the first, or two pairs, whatever takes least.
    fn pack(&mut self, costs: &Costs) -> Vec<Range<usize>> {
        let count = self.objects.len();
        if count < 2 {
            return Vec::new();
        }
        self.found[2].compression.0 = count as u32;
        let now: usize = self.objects.iter().map(|bytes| costs.slot(*bytes)).sum();
        let extent = |length| costs.slot(length) + ENTRY;
        let all = 0..count;
        if self.compress(all.clone()).is_some_and(|length| extent(length) < now) {
            return vec![all];
        }
        let plans = match count {
            2 => vec![],
            3 => vec![vec![0..2], vec![1..3]],
            _ => vec![vec![0..count - 1], vec![1..count], vec![0..count / 2, count / 2..count]],
        };
        let (mut best, mut least) = (Vec::new(), now);
        for plan in plans {
            let single = |(n, bytes): (usize, &usize)| {
                let is_in = plan.iter().any(|run| run.contains(&n));
                if is_in { 0 } else { costs.slot(*bytes) }
            };
            let alone: usize = self.objects.iter().enumerate().map(single).sum();
            let packed: Option<Vec<usize>> =
                plan.iter().map(|run| self.length(run.clone())).collect();
            let Some(packed) = packed else { continue };
            let bytes = alone + packed.into_iter().map(extent).sum::<usize>();
            if bytes < least {
                (best, least) = (plan, bytes);
            }
        }
        best
    }

    /// Makes an extent of a run, and reads each of its pages.
    fn make(&mut self, costs: &Costs, run: Range<usize>) {
        let Some(length) = self.compress(run.clone()) else { return };
        let found = &mut self.found[2];
        found.stored += costs.of(length) + ENTRY as f64;
        let (pages, _) = self.members.as_chunks::<PAGE_SIZE>();
        for (part, page) in pages[run.clone()].iter().enumerate() {
            let read = self.warm.read_part(&self.output[..length], (part, run.len()), page);
            found.decompression = (found.decompression.0 + 1, found.decompression.1 + read);
        }
    }

    /// The bytes that a run would take at most; `None` if they do not fit.
    fn length(&mut self, run: Range<usize>) -> Option<usize> {
        let start = Instant::now();
        let length = self.packer.length(&self.members[run.start * PAGE_SIZE..run.end * PAGE_SIZE]);
        self.found[2].compression.1 += start.elapsed();
        length
    }

    /// Compresses a run to `output`, and returns the bytes; `None` if they do not fit.
    fn compress(&mut self, run: Range<usize>) -> Option<usize> {
        if let Some((_, length)) = self.last.as_ref().filter(|(last, _)| *last == run) {
            return Some(*length);
        }
        let pages = &self.members[run.start * PAGE_SIZE..run.end * PAGE_SIZE];
        let start = Instant::now();
        let length = self.packer.compress(pages, &mut self.output[..]);
        self.found[2].compression.1 += start.elapsed();
        self.last = length.map(|length| (run, length));
        length
    }
}
