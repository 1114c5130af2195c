//! Random operations from a seed.

use block::ZeroMode;
use testkit::Rng;
use units::PAGE_SIZE;

use crate::content::Fill;

/// A byte range of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

impl Span {
    /// The range of `length` bytes from `offset`.
    #[must_use]
    pub const fn new(offset: u64, length: u64) -> Span {
        Span { offset, length }
    }

    /// The range as indices into an array of the device's bytes.
    #[must_use]
    pub fn indices(self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.length) as usize
    }

    /// The pages that the range touches.
    #[must_use]
    pub fn pages(self) -> std::ops::Range<usize> {
        let bytes = self.indices();
        if bytes.is_empty() {
            return 0..0;
        }
        bytes.start / PAGE_SIZE..bytes.end.div_ceil(PAGE_SIZE)
    }

    /// The pages that are wholly in the range.
    #[must_use]
    pub fn whole_pages(self) -> std::ops::Range<usize> {
        let bytes = self.indices();
        let (first, end) = (bytes.start.div_ceil(PAGE_SIZE), bytes.end / PAGE_SIZE);
        first..end.max(first)
    }
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Read, and compare.
    Read(Span),
    /// Write.
    Write(Span, Fill),
    /// Discard.
    Discard(Span),
    /// Write zeroes.
    WriteZeroes(Span, ZeroMode),
    /// Flush.
    Flush,
    /// Ask for the extents, and check them.
    Extents(Span),
}

/// The frequency of each kind of event, relative to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights {
    /// Reads of any range.
    pub read: u32,
    /// Writes of one or a few whole pages.
    pub write_pages: u32,
    /// Writes of any range.
    pub write_range: u32,
    /// Discards of any range.
    pub discard: u32,
    /// Zeroes whose pages may become holes.
    pub punch: u32,
    /// Zeroes whose pages stay allocated.
    pub zero: u32,
    /// Flushes.
    pub flush: u32,
    /// Requests for extents.
    pub extents: u32,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights {
            read: 30,
            write_pages: 30,
            write_range: 20,
            discard: 6,
            punch: 3,
            zero: 3,
            flush: 1,
            extents: 7,
        }
    }
}

/// An endless sequence of events for a device.
#[derive(Clone, Debug)]
pub struct Events {
    rng: Rng,
    weights: Weights,
    bytes: u64,
    unit: u64,
    texts: Vec<u64>,
}

/// The number of texts that are kept for edits.
const TEXTS: usize = 32;
const P: u64 = PAGE_SIZE as u64;

impl Events {
    /// Events for a device of `bytes` bytes. All ranges are multiples of `unit`.
    ///
    /// # Panics
    /// If the weights are all zero, or the device has no bytes.
    #[must_use]
    pub fn new(seed: u64, bytes: u64, unit: u64, weights: Weights) -> Events {
        assert!(bytes > 0 && unit > 0, "events need a device and a unit");
        Events { rng: Rng::new(seed), weights, bytes, unit, texts: Vec::new() }
    }

    /// Draws a range: small or large, page-aligned or not, and sometimes at an end of the device.
    /// Half of the ranges are in a few hot pages, so that events meet earlier contents.
    fn span(&mut self) -> Span {
        let rng = &mut self.rng;
        let hot = rng.one_in(2);
        let area = if hot { self.bytes.min(4 * P) } else { self.bytes };
        let most = match rng.below(8) {
            0 => 0,
            1 | 2 => 16,
            3 | 4 => P - 1,
            5 | 6 => 3 * P,
            _ => 40 * P,
        };
        let most = most.min(area);
        let mut length = rng.below(most + 1);
        let mut offset = match rng.below(16) {
            0 => 0,
            1 => area - length,
            _ => rng.below(area - length + 1),
        };
        let unit = if rng.one_in(4) { P.max(self.unit) } else { self.unit };
        offset -= offset % unit;
        length = length.next_multiple_of(unit).min(self.bytes - offset);
        Span { offset, length: length - length % self.unit }
    }

    fn whole_pages(&mut self) -> Span {
        let pages = self.bytes / P;
        if pages == 0 {
            return self.span();
        }
        let count = if self.rng.one_in(4) { 1 + self.rng.below(8) } else { 1 };
        let count = count.min(pages);
        let area = if self.rng.one_in(2) { pages.min(4.max(count)) } else { pages };
        Span { offset: self.rng.below(area - count + 1) * P, length: count * P }
    }

    fn fill(&mut self) -> Fill {
        if !self.texts.is_empty() && self.rng.one_in(8) {
            let text = *self.rng.pick(&self.texts);
            return Fill::Edited { text, edits: self.rng.next_u64() };
        }
        let fill = Fill::draw(&mut self.rng);
        if let Fill::Text(text) = fill {
            if self.texts.len() == TEXTS {
                let oldest = self.rng.below(TEXTS as u64) as usize;
                self.texts.swap_remove(oldest);
            }
            self.texts.push(text);
        }
        fill
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let w = self.weights;
        let weights =
            [w.read, w.write_pages, w.write_range, w.discard, w.punch, w.zero, w.flush, w.extents];
        let total: u32 = weights.iter().sum();
        let mut drawn = self.rng.range(0..u64::from(total));
        let mut kind = 0;
        while drawn >= u64::from(weights[kind]) {
            drawn -= u64::from(weights[kind]);
            kind += 1;
        }
        Some(match kind {
            0 => Event::Read(self.span()),
            1 => Event::Write(self.whole_pages(), self.fill()),
            2 => Event::Write(self.span(), self.fill()),
            3 => Event::Discard(self.span()),
            4 => Event::WriteZeroes(self.span(), ZeroMode::MayPunch),
            5 => Event::WriteZeroes(self.span(), ZeroMode::KeepAllocated),
            6 => Event::Flush,
            _ => Event::Extents(self.span()),
        })
    }
}
