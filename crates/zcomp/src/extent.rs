//! Extents: neighbouring pages that are compressed as one object.

use alloc::{boxed::Box, vec::Vec};
use core::ops::Range;

use units::{PAGE_SIZE, Page};

use crate::{CodecError, EXTENT_PAGES, Packer};

/// All pages as one take no more than any parts of them. Parts that take no more than this part of
/// it above that are good enough: it costs more time to find better ones than they are worth.
const CLOSE: usize = 20;

/// More runs of the pages of a group are not tried.
const RUNS: usize = 5;

/// What packs the pages of a group. One thread needs one; nothing is added to its memory later.
pub struct ExtentPacker {
    packer: Box<dyn Packer>,
    /// The pages of the group, one behind the other.
    pages: Vec<u8>,
    /// For what is being compressed.
    room: Vec<u8>,
    /// The runs that were tried come first.
    runs: [Run; RUNS],
    tried: usize,
}

/// A run of the pages of a group, compressed.
#[derive(Default)]
struct Run {
    pages: Range<usize>,
    /// The length of the extent; `None` if it takes more than the pages.
    length: Option<usize>,
    /// The extent, if it is shorter than a page.
    bytes: Vec<u8>,
}

/// How the pages of a group are put together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Runs of pages that become extents. What is in none gets an object of its own.
    pub runs: [Range<usize>; 2],
    /// The bytes that all the pages take then, at most.
    pub bytes: usize,
}

impl Plan {
    /// Whether a page gets an object of its own.
    #[must_use]
    pub fn leaves_alone(&self, page: usize) -> bool {
        !self.runs.iter().any(|run| run.contains(&page))
    }
}

/// The pages of a group that is planned.
#[derive(Clone, Copy, Debug)]
pub struct ToPlan {
    /// How many pages there are, in the first places of [`ExtentPacker::page`].
    pub pages: usize,
    /// The bytes that come free when all of them leave their objects.
    pub now: usize,
    /// Some page gets a new object if it is left alone, so that it is a change if all are.
    pub anew: bool,
}

impl ExtentPacker {
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(packer: Box<dyn Packer>) -> Result<ExtentPacker, CodecError> {
        let room = |bytes: usize| -> Result<Vec<u8>, CodecError> {
            let mut room = Vec::new();
            let got = room.try_reserve_exact(bytes);
            got.map_err(|_| CodecError("no memory to pack pages".into()))?;
            room.resize(bytes, 0);
            Ok(room)
        };
        let mut runs: [Run; RUNS] = Default::default();
        for run in &mut runs {
            run.bytes = room(PAGE_SIZE - 1)?;
        }
        let (pages, room) = (room(EXTENT_PAGES * PAGE_SIZE)?, room(EXTENT_PAGES * PAGE_SIZE)?);
        Ok(ExtentPacker { packer, pages, room, runs, tried: 0 })
    }

    /// The place of a page of the group.
    ///
    /// # Panics
    /// From [`EXTENT_PAGES`] on.
    pub fn page(&mut self, member: usize) -> &mut Page {
        self.tried = 0;
        let bytes = &mut self.pages[member * PAGE_SIZE..(member + 1) * PAGE_SIZE];
        bytes.try_into().unwrap_or_else(|_| unreachable!("it is as long as a page"))
    }

    /// The pages of the group, and what was in the other places before.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        self.pages.as_chunks().0
    }

    /// Makes an extent of a run of the pages. `None` if it is no shorter than a page. Takes time
    /// once for a run.
    pub fn compress(&mut self, pages: Range<usize>) -> Option<&[u8]> {
        let length = self.length(pages.clone()).filter(|length| *length < PAGE_SIZE)?;
        let run = self.runs[..self.tried].iter().find(|run| run.pages == pages)?;
        Some(&run.bytes[..length])
    }

    /// The bytes of an extent of a run, which may be more than those of a page; `None` if they are
    /// more than those of the run, or if more runs are tried than [`ExtentPacker::plan`] tries.
    /// Takes time once for a run.
    pub fn length(&mut self, pages: Range<usize>) -> Option<usize> {
        if let Some(run) = self.runs[..self.tried].iter().find(|run| run.pages == pages) {
            return run.length;
        }
        let run = self.runs.get_mut(self.tried)?;
        let bytes = &self.pages[pages.start * PAGE_SIZE..pages.end * PAGE_SIZE];
        let length = self.packer.compress(bytes, &mut self.room);
        run.length = length.filter(|length| *length <= bytes.len());
        if let Some(length) = run.length.filter(|length| *length < PAGE_SIZE) {
            run.bytes[..length].copy_from_slice(&self.room[..length]);
        }
        run.pages = pages;
        self.tried += 1;
        run.length
    }

    /// A plan by which the pages of a group take about the least memory; `None` if that is no less
    /// than now. All as one extent is the first choice. `extent` is how many bytes one of a
    /// length below a page takes, `alone` how many a page takes by itself; `None` if that cannot be
    /// told.
    pub fn plan(
        &mut self,
        group: ToPlan,
        extent: impl Fn(usize) -> usize,
        mut alone: impl FnMut(usize, &Page) -> Option<usize>,
    ) -> Option<Plan> {
        let count = group.pages;
        if count > 1
            && let Some(length) = self.compress(0..count).map(<[u8]>::len)
            && let bytes = extent(length)
            && bytes < group.now
        {
            return Some(Plan { runs: [0..count, 0..0], bytes });
        }
        let mut known = [None; EXTENT_PAGES];
        let mut alone = |n: usize, page: &Page| *known[n].get_or_insert_with(|| alone(n, page));
        let all = if count > 1 { self.length(0..count) } else { None };
        let enough = all.map_or(0, |all| all + all / CLOSE);
        let first = [0..count.saturating_sub(1), 0..0];
        let pairs = [0..count / 2, count / 2..count];
        let last = [1.min(count)..count, 0..0];
        // What `first` takes, as far as that is known before it is made.
        let about = match all {
            Some(all) if count > 2 => self.about(count, all, &extent, &mut alone),
            _ => 0,
        };
        let plans = [first.clone(), pairs, first, last, [0..0, 0..0]];
        let (mut most, mut best) = (group.now, None);
        for (number, runs) in plans.iter().enumerate() {
            let is_wanted = match number {
                // Extents save little.
                4 => group.anew && most > group.now / 4 * 3,
                _ if count < 3 => false,
                0 => about <= enough,
                1 => count > 3,
                2 => about > enough && about < most,
                // It is searched from its beginning once more.
                _ => best.is_none(),
            };
            if is_wanted
                && let Some(bytes) = self.bytes_by(count, runs, &extent, &mut alone)
                && bytes < most
            {
                (most, best) = (bytes, Some(Plan { runs: runs.clone(), bytes }));
                if bytes <= enough {
                    break;
                }
            }
        }
        best
    }

    /// About the bytes of a group of which the last page is alone, and the others are an extent, if
    /// that of all is `all` bytes long: 0 if that is not known, and very many if they do not fit.
    fn about(
        &mut self,
        count: usize,
        all: usize,
        extent: &impl Fn(usize) -> usize,
        alone: &mut impl FnMut(usize, &Page) -> Option<usize>,
    ) -> usize {
        let Some(shares) = self.packer.shares(&self.pages[..count * PAGE_SIZE]) else { return 0 };
        let length = all * shares[count - 2] / shares[count - 1].max(1);
        if length > PAGE_SIZE + PAGE_SIZE / CLOSE {
            return usize::MAX;
        }
        let bytes = extent(length.min(PAGE_SIZE - 1));
        alone(count - 1, &self.pages()[count - 1]).map_or(usize::MAX, |last| bytes + last)
    }

    /// The bytes that the pages take with these runs at most; `None` if it is impossible.
    fn bytes_by(
        &mut self,
        count: usize,
        runs: &[Range<usize>; 2],
        extent: &impl Fn(usize) -> usize,
        alone: &mut impl FnMut(usize, &Page) -> Option<usize>,
    ) -> Option<usize> {
        let mut bytes = 0;
        for run in runs.iter().filter(|run| !run.is_empty()) {
            bytes += extent(self.length(run.clone()).filter(|length| *length < PAGE_SIZE)?);
        }
        for page in (0..count).filter(|page| !runs.iter().any(|run| run.contains(page))) {
            bytes += alone(page, &self.pages()[page])?;
        }
        Some(bytes)
    }
}
