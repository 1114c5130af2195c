//! The tiers of a disk whose pages move by themselves, and what pages cost there.
//!
//! The rules are those of the crate `zram` (`tiering/moves.rs`); an `ExtentPacker` plans. Only the
//! order of neighbours is an assumption: extents are of neighbours on the disk, and here those by
//! address or by place in the file.

use std::time::{Duration, Instant};

use tiers::{COLD, OUT, TIERS as FORMS, WARM, WARM_CODEC};
use units::{PAGE_SIZE, Page};
use zcomp::{CodecError, EXTENT_PAGES, ExtentPacker, ToPlan};

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
    /// The bytes of the objects of the pages of the cluster that may be packed.
    objects: Vec<usize>,
    found: [Found; TIERS.len()],
}

impl TierTrial {
    pub fn new() -> Result<TierTrial, CodecError> {
        let (name, level) = WARM_CODEC;
        let warm = Trial::new(&Codec::parse(&format!("{name}:{level}"))?)?;
        let packer = warm.packer()?;
        Ok(TierTrial {
            warm,
            packer,
            objects: Vec::with_capacity(EXTENT_PAGES),
            found: Default::default(),
        })
    }

    /// Begins a cluster.
    pub fn begin(&mut self) {
        self.objects.clear();
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
        *self.packer.page(self.objects.len()) = *page;
        self.objects.push(bytes);
    }

    /// Ends a cluster: packs its pages, and returns what was found, tier by tier.
    pub fn end(&mut self, costs: &Costs) -> [Found; TIERS.len()] {
        let slots = self.objects.iter().map(|bytes| costs.slot(*bytes));
        let (pages, now) = (self.objects.len(), slots.sum());
        let group = ToPlan { pages, now, anew: false };
        let start = Instant::now();
        let alone = |n: usize, _: &Page| Some(costs.slot(self.objects[n]));
        let plan = self.packer.plan(group, |length| costs.slot(length) + ENTRY, alone);
        let runs = plan.map(|plan| plan.runs).unwrap_or_default();
        let found = &mut self.found[2];
        for run in runs.iter().filter(|run| !run.is_empty()) {
            // It is there already.
            if let Some(extent) = self.packer.compress(run.clone()) {
                found.stored += costs.of(extent.len()) + ENTRY as f64;
            }
        }
        if pages > 1 {
            found.compression.0 = pages as u32;
            found.compression.1 += start.elapsed();
        }
        for (n, bytes) in self.objects.iter().enumerate() {
            if !runs.iter().any(|run| run.contains(&n)) {
                found.stored += costs.of(*bytes);
            }
        }
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            let (first, pages) = (self.packer.pages()[run.start], run.len());
            let Some(extent) = self.packer.compress(run) else { continue };
            // Any of its pages takes as long, if another extent was read before.
            let read = self.warm.read_part(extent, (0, pages), &first);
            let (count, time) = &mut found.decompression;
            (*count, *time) = (*count + pages as u32, *time + read * pages as u32);
        }
        self.found
    }
}
