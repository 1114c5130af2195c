//! Byte ranges as pages: whole pages go to the engine; parts of pages are read, changed and
//! replaced. An operation stops at a page that must be fetched from the backing device, and the
//! caller goes on.

use alloc::sync::Arc;
use core::ops::{ControlFlow, Range};

use block::{Context, Extent, IoError, Visit, Wait, ZeroMode};
use units::{PAGE_SIZE, Page};

use crate::counts::Count;
use crate::engine::{Ahead, Engine, Loaded};
use crate::path::request::Request;

const P: u64 = PAGE_SIZE as u64;

/// Pages one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pages {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Pages {
    pub(crate) fn one(page: u64) -> Pages {
        Pages { first: page, count: 1 }
    }
}

/// The pages of a range. One that passes 2^64 - 1 passes the end of every device.
pub(crate) fn touched_pages(offset: u64, length: u64) -> Pages {
    let first = offset / P;
    match offset.checked_add(length) {
        Some(end) => Pages { first, count: end.div_ceil(P) - first },
        None => Pages::one(u64::MAX),
    }
}

/// A part of a range that lies in one page.
pub(crate) struct PagePart {
    pub(crate) page: u64,
    /// The begin and end in the page.
    pub(crate) within: Range<usize>,
    /// The begin and end in the range.
    of_range: Range<usize>,
}

impl PagePart {
    pub(crate) fn is_whole(&self) -> bool {
        self.within.len() == PAGE_SIZE
    }
}

/// The parts of the range, none of which lies in two pages.
pub(crate) fn parts(offset: u64, length: u64) -> impl Iterator<Item = PagePart> {
    let end = offset + length;
    let mut at = offset;
    core::iter::from_fn(move || {
        (at < end).then(|| {
            let from = (at % P) as usize;
            let size = (PAGE_SIZE - from).min((end - at) as usize);
            let done = (at - offset) as usize;
            let part =
                PagePart { page: at / P, within: from..from + size, of_range: done..done + size };
            at += size as u64;
            part
        })
    })
}

/// A change of a range.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// The bytes of the range become these.
    Write(&'a [u8]),
    /// The bytes of the range become zeroes.
    Zero(ZeroMode),
}

impl Change<'_> {
    /// The change of what follows the first `bytes` of the range.
    pub(crate) fn after(&self, bytes: usize) -> Change<'_> {
        match self {
            Change::Write(from) => Change::Write(&from[bytes..]),
            Change::Zero(mode) => Change::Zero(*mode),
        }
    }

    /// Changes a part of a page; `of_range` is the place of the part in the range.
    pub(crate) fn put(&self, of_range: Range<usize>, part: &mut [u8]) {
        match self {
            Change::Write(from) => part.copy_from_slice(&from[of_range]),
            Change::Zero(_) => part.fill(0),
        }
    }
}

/// Why a change stopped at a part of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The page must be fetched from the backing device first.
    Fetch,
    /// The device is at its `mem_limit`. The part is neither done nor counted.
    Full,
}

/// Where a change stopped.
pub(crate) struct Stopped {
    pub(crate) why: Why,
    /// The engine with the page.
    pub(crate) engine: Arc<Engine>,
    /// The slot of the first page of the device.
    pub(crate) base: usize,
    /// The page of the device.
    pub(crate) page: u64,
    /// The begin and end of the part in the page.
    pub(crate) within: Range<usize>,
    /// The begin and end of the part in the range. The change goes on at the end.
    pub(crate) of_range: Range<usize>,
}

/// One operation on the pages of an engine. It does not pass the end of the engine.
pub(crate) struct Pass<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) context: Context,
}

/// Pages of a read that came from memory, and those that failed.
#[derive(Default)]
struct Loads {
    pages: i64,
    failed: i64,
}

impl Pass<'_> {
    /// Changes a range, or the rest of one that `begun` to change, from its beginning to its end or
    /// to a page at which it stops. A failed page ends it; the pages before it stay done.
    ///
    /// # Errors
    /// `WouldBlock` if the operation must not wait but would have to; nothing has changed then.
    #[inline]
    pub(crate) fn change(
        &self,
        offset: u64,
        length: u64,
        change: Change<'_>,
        begun: bool,
    ) -> Result<Option<Stopped>, IoError> {
        if !begun {
            self.look_at_ends(offset, length)?;
        }
        match change {
            Change::Write(from) => self.write(offset, from),
            Change::Zero(mode) => self.zero(offset, length, mode),
        }
    }

    /// Checks the first and the last page before anything changes: a page written back that is
    /// changed in part must be fetched. Whole pages are replaced without a look at their old
    /// contents.
    #[inline]
    fn look_at_ends(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let end = offset + length;
        if self.context.wait == Wait::Yes || length == 0 || (offset | end).is_multiple_of(P) {
            return Ok(());
        }
        let is_backed = |at: u64| {
            !at.is_multiple_of(P) && self.request.engine.peek(self.request.slot(at / P)).is_backed()
        };
        if is_backed(offset) || is_backed(end) { self.context.may_wait() } else { Ok(()) }
    }

    #[inline]
    fn write(&self, offset: u64, from: &[u8]) -> Result<Option<Stopped>, IoError> {
        let end = (offset + from.len() as u64) / P;
        for part in parts(offset, from.len() as u64) {
            if part.page + 1 < end {
                self.request.prefetch(part.page + 1, Ahead::Zspage);
            }
            let piece = &from[part.of_range.clone()];
            let written = match <&Page>::try_from(piece) {
                Ok(page) => self.request.store(part.page, page).map(|()| Loaded::Page),
                Err(_) => {
                    let mut put =
                        |page: &mut Page| page[part.within.clone()].copy_from_slice(piece);
                    self.modify(&part, &mut put)
                }
            };
            if let Some(why) = stops(written) {
                return Ok(Some(self.stopped(why, part)));
            }
            self.request.count_write(written.map(drop))?;
        }
        Ok(None)
    }

    fn zero(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<Option<Stopped>, IoError> {
        let [head, tail] = zeroed_ranges(offset, length, mode);
        for range in [&head, &tail] {
            for mut part in parts(range.start, range.end - range.start) {
                let done = if part.is_whole() {
                    let slot = self.request.slot(part.page);
                    self.request.engine.store_zeroes(self.request.by(), slot);
                    Ok(Loaded::Page)
                } else {
                    let mut zero = |page: &mut Page| page[part.within.clone()].fill(0);
                    self.modify(&part, &mut zero)
                };
                if let Some(why) = stops(done) {
                    let before = (range.start - offset) as usize;
                    part.of_range = before + part.of_range.start..before + part.of_range.end;
                    return Ok(Some(self.stopped(why, part)));
                }
                self.request.count_write(done.map(drop))?;
            }
            self.give_up(range.end, tail.start.saturating_sub(range.end));
        }
        Ok(None)
    }

    fn stopped(&self, why: Why, part: PagePart) -> Stopped {
        let PagePart { page, within, of_range } = part;
        let Request { shared, base, .. } = self.request;
        Stopped { why, engine: shared.clone(), base, page, within, of_range }
    }

    /// Empties the whole pages of a range.
    pub(crate) fn give_up(&self, offset: u64, length: u64) {
        let (first, end) = (offset.div_ceil(P), (offset + length) / P);
        if first < end {
            let (request, count) = (&self.request, end - first);
            request.engine.discard(request.by(), request.slot(first), count as usize);
            request.counts.add(request.cpu, Count::NotifyFree, count as i64);
        }
    }

    /// Reads a range up to the first page that is on the backing device. Returns the number of
    /// bytes before that page; `None` when all was read.
    #[inline]
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>, IoError> {
        let mut loads = Loads::default();
        let read = self.load(offset, into, &mut loads);
        // The caller repeats the operation, and it is counted then.
        if read != Err(IoError::WouldBlock) {
            let Request { cpu, counts, .. } = self.request;
            counts.add(cpu, Count::Reads, loads.pages);
            if loads.failed > 0 {
                counts.add(cpu, Count::FailedReads, loads.failed);
            }
        }
        read
    }

    #[inline]
    fn load(
        &self,
        offset: u64,
        into: &mut [u8],
        loads: &mut Loads,
    ) -> Result<Option<usize>, IoError> {
        let Pass { request, context } = self;
        let end = (offset + into.len() as u64) / P;
        for part in parts(offset, into.len() as u64) {
            let piece = &mut into[part.of_range.clone()];
            let index = part.page;
            if index + 2 < end {
                request.prefetch(index + 2, Ahead::Zspage);
            }
            if index + 1 < end {
                request.prefetch(index + 1, Ahead::Contents);
            }
            let loaded = match <&mut Page>::try_from(&mut *piece) {
                Ok(page) => request.load(index, page),
                Err(_) => {
                    let mut page = [0; PAGE_SIZE];
                    let loaded = request.load(index, &mut page);
                    piece.copy_from_slice(&page[part.within.clone()]);
                    loaded
                }
            };
            if let Ok(Loaded::Backed(_)) = loaded {
                context.may_wait()?;
                return Ok(Some(part.of_range.start));
            }
            loads.pages += 1;
            loads.failed += i64::from(loaded.is_err());
            loaded?;
        }
        Ok(None)
    }

    /// Changes a part of a page, or returns its place on the backing device.
    fn modify(&self, part: &PagePart, edit: &mut dyn FnMut(&mut Page)) -> Result<Loaded, IoError> {
        self.request.modify(part.page, None, edit)
    }
}

/// Whether a change stops at a page, and why.
#[inline]
fn stops(done: Result<Loaded, IoError>) -> Option<Why> {
    match done {
        Ok(Loaded::Backed(_)) => Some(Why::Fetch),
        Err(IoError::NoSpace) => Some(Why::Full),
        _ => None,
    }
}

/// The parts of a zeroed range that are not discarded: all of it, or only the partial pages at its
/// ends. The second range is empty, or lies behind the first.
fn zeroed_ranges(offset: u64, length: u64, mode: ZeroMode) -> [Range<u64>; 2] {
    let (end, whole_from, whole_end) =
        (offset + length, offset.next_multiple_of(P), (offset + length) / P * P);
    if mode == ZeroMode::KeepAllocated || whole_from >= whole_end {
        [offset..end, end..end]
    } else {
        [offset..whole_from, whole_end..end]
    }
}

/// Calls `visit` with the extents that `extents` reports in whole pages, cut to the range.
pub(crate) fn clip(offset: u64, length: u64, visit: Visit<'_>, extents: impl FnOnce(Visit<'_>)) {
    let (mut skip, mut left) = (offset % P, length);
    extents(&mut |extent: Extent| {
        let length = (extent.length - skip).min(left);
        skip = 0;
        left -= length;
        if length == 0 {
            return ControlFlow::Break(());
        }
        visit(Extent { length, kind: extent.kind })
    });
}
