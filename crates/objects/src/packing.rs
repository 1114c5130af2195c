//! Extents: neighbouring pages that are compressed as one object, and how they are put together so
//! that they take least memory.

use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::ops::Range;

use sync::Reader;
use units::{PAGE_SIZE, Page};
use zcomp::{Compressor, EXTENT_PAGES, ExtentPacker, PRIORITIES};

use crate::{Compressed, ENTRY_BYTES, Objects};

/// What one thread needs to pack pages: nothing is added to its memory later.
pub struct Packing {
    compressor: Arc<dyn Compressor>,
    packer: ExtentPacker,
    /// The number of the codec, and its priority.
    codec: u8,
    priority: u8,
    /// The pages of a group, one behind the other.
    pages: Vec<u8>,
    /// The last extent that was compressed, its pages and its length.
    output: Vec<u8>,
    made: (Range<usize>, usize),
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
    /// How many pages there are, in the first places of [`Packing::page`].
    pub pages: usize,
    /// The bytes that come free when all of them leave their objects.
    pub now: usize,
    /// Some are in an extent now, so that it is a change if all get objects of their own.
    pub is_packed: bool,
    /// A plan of as many bytes as now is good enough.
    pub again: bool,
}

impl Packing {
    /// Sets the levels ([`ExtentPacker::set_levels`]).
    pub fn set_levels(&mut self, low: Option<i32>, high: Option<i32>) {
        self.made = (0..0, 0);
        self.packer.set_levels(low, high);
    }

    /// The priority of the codec.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// The place of a page of the group.
    ///
    /// # Panics
    /// From [`EXTENT_PAGES`] on.
    pub fn page(&mut self, member: usize) -> &mut Page {
        self.made = (0..0, 0);
        let bytes = &mut self.pages[member * PAGE_SIZE..(member + 1) * PAGE_SIZE];
        bytes.try_into().unwrap_or_else(|_| unreachable!("it is as long as a page"))
    }

    /// Compresses a run of the pages as an extent, unless it is the last that was made; `None` if
    /// they do not fit.
    pub fn compress(&mut self, run: Range<usize>) -> Option<Compressed<'_>> {
        if self.made.0 != run {
            let pages = &self.pages[run.start * PAGE_SIZE..run.end * PAGE_SIZE];
            self.made = (0..0, 0);
            self.made = (run, self.packer.compress(pages, &mut self.output)?);
        }
        Some(Compressed { bytes: &self.output[..self.made.1], codec: self.codec })
    }

    /// The plan by which the pages take least memory; `None` if that is no less than now. All as
    /// one extent is the first choice, and is compressed then: the plan has its bytes. `alone` says
    /// how many bytes a page takes by itself; `None` if that cannot be told.
    pub fn plan(
        &mut self,
        objects: &Objects,
        group: ToPlan,
        mut alone: impl FnMut(usize, &Page) -> Option<usize>,
    ) -> Option<Plan> {
        let count = group.pages;
        if count > 1
            && let Some(made) = self.compress(0..count)
            && let bytes = objects.extent_bytes(made.bytes.len())
            && bytes < group.now
        {
            return Some(Plan { runs: [0..count, 0..0], bytes });
        }
        let all: [[Range<usize>; 2]; 4] = [
            [0..0, 0..0],
            [0..count.saturating_sub(1), 0..0],
            [1.min(count)..count, 0..0],
            [0..count / 2, count / 2..count],
        ];
        // The present plan is as good as any at the low level. The high one makes it smaller.
        let (mut most, mut best) = (group.now + usize::from(group.again), None);
        for (n, runs) in all.into_iter().enumerate() {
            let fits = |run: &Range<usize>| run.is_empty() || run.len() > 1;
            // Without an extent, only pages of another extent change.
            let changes = n > 0 || group.is_packed;
            if !changes || n > 0 && count < 3 || !runs.iter().all(fits) {
                continue;
            }
            if let Some(bytes) = self.bytes_by(objects, count, &runs, &mut alone)
                && bytes < most
            {
                (most, best) = (bytes, Some(Plan { runs, bytes }));
            }
        }
        best
    }

    /// The bytes that the pages take with these runs at most; `None` if it is impossible.
    fn bytes_by(
        &mut self,
        objects: &Objects,
        count: usize,
        runs: &[Range<usize>; 2],
        alone: &mut impl FnMut(usize, &Page) -> Option<usize>,
    ) -> Option<usize> {
        let mut bytes = 0;
        for run in runs.iter().filter(|run| !run.is_empty()) {
            let pages = &self.pages[run.start * PAGE_SIZE..run.end * PAGE_SIZE];
            bytes += objects.extent_bytes(self.packer.length(pages)?);
        }
        let (pages, _) = self.pages.as_chunks();
        for page in (0..count).filter(|page| !runs.iter().any(|run| run.contains(page))) {
            bytes += alone(page, &pages[page])?;
        }
        Some(bytes)
    }
}

impl Objects {
    /// What a thread needs to pack pages with the codec of a priority, at its level; `None` if the
    /// codec packs no pages, or there is none.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub fn packing(&self, reader: &Reader<'_>, priority: u8) -> Result<Option<Packing>, String> {
        let Some((codec, current)) = self.codecs().current(reader, priority) else {
            return Ok(None);
        };
        let compressor = current.chosen.compressor.clone();
        let Some(packer) = compressor.packer().map_err(|error| error.0)? else {
            return Ok(None);
        };
        let packer = ExtentPacker::new(packer).map_err(|error| error.0)?;
        let room = |bytes| -> Result<Vec<u8>, String> {
            let mut room = Vec::new();
            room.try_reserve_exact(bytes).map_err(|_| format!("{bytes} bytes"))?;
            room.resize(bytes, 0);
            Ok(room)
        };
        // An object is smaller than a page.
        let (pages, output) = (room(EXTENT_PAGES * PAGE_SIZE)?, room(PAGE_SIZE - 1)?);
        let made = (0..0, 0);
        Ok(Some(Packing { compressor, packer, codec, priority, pages, output, made }))
    }

    /// The same with the first codec that packs pages, from priority 1 on and the primary one last.
    ///
    /// # Errors
    /// Says that there is no memory.
    pub fn any_packing(&self, reader: &Reader<'_>) -> Result<Option<Packing>, String> {
        for priority in (1..PRIORITIES as u8).chain([0]) {
            if let Some(packing) = self.packing(reader, priority)? {
                return Ok(Some(packing));
            }
        }
        Ok(None)
    }

    /// Whether the codec is still the one of its priority.
    #[must_use]
    pub fn is_current(&self, reader: &Reader<'_>, packing: &Packing) -> bool {
        let current = self.codecs().current(reader, packing.priority);
        current.is_some_and(|(number, codec)| {
            number == packing.codec && Arc::ptr_eq(&codec.chosen.compressor, &packing.compressor)
        })
    }

    /// The bytes that an extent of `length` bytes takes, with its entry.
    #[must_use]
    pub fn extent_bytes(&self, length: usize) -> usize {
        self.pool().slot_bytes(length) + ENTRY_BYTES as usize
    }
}
