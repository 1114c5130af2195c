//! Byte ranges as pages: whole pages go to the engine; parts of pages are read, changed and
//! replaced.

use core::ops::ControlFlow;

use block::{Context, Extent, IoError, Operation, Visit, Wait, ZeroMode};
use units::{PAGE_SIZE, Page};

use crate::counts::Count;
use crate::page_ops::Loaded;
use crate::read_backing::Fetches;
use crate::request::Request;
use crate::resources::Design;

const P: u64 = PAGE_SIZE as u64;

/// The first page and the number of pages of a range. A range that passes 2^64 - 1 is returned as
/// one that passes the end of every device.
pub(crate) fn touched_pages(offset: u64, length: u64) -> (u64, u64) {
    match offset.checked_add(length) {
        Some(end) => (offset / P, end.div_ceil(P) - offset / P),
        None => (u64::MAX, 1),
    }
}

/// A part of a range that lies in one page.
struct Part {
    page: u64,
    /// The begin and end in the page.
    within: core::ops::Range<usize>,
    /// The begin and end in the range.
    of_range: core::ops::Range<usize>,
}

impl Part {
    fn is_whole(&self) -> bool {
        self.within.len() == PAGE_SIZE
    }
}

fn parts(offset: u64, length: u64) -> impl Iterator<Item = Part> {
    let end = offset + length;
    let mut at = offset;
    core::iter::from_fn(move || {
        (at < end).then(|| {
            let from = (at % P) as usize;
            let size = (PAGE_SIZE - from).min((end - at) as usize);
            let done = (at - offset) as usize;
            let part =
                Part { page: at / P, within: from..from + size, of_range: done..done + size };
            at += size as u64;
            part
        })
    })
}

/// One operation on the pages of an engine. It does not pass the end of the engine.
pub(crate) struct Pass<'a, D: Design> {
    pub(crate) request: Request<'a, D>,
    pub(crate) context: Context,
}

/// Pages of a read that came from memory, and those that failed.
#[derive(Default)]
struct Loads {
    pages: i64,
    failed: i64,
}

impl<D: Design> Pass<'_, D> {
    /// Carries out the operation on the range `(offset, length)`. A failed page ends it; the pages
    /// before it stay done. If the operation must not wait but would have to, nothing has changed.
    #[inline]
    pub(crate) fn carry_out(
        &self,
        (offset, length): (u64, u64),
        operation: Operation<'_>,
    ) -> Result<(), IoError> {
        match operation {
            Operation::Read { into, .. } => self.read(offset, into),
            Operation::Write { from, .. } => {
                self.look_at_ends(offset, length)?;
                parts(offset, length).try_for_each(|part| {
                    let piece = &from[part.of_range.clone()];
                    self.count_write(self.write_part(&part, piece))
                })
            }
            Operation::Discard { .. } => {
                let _ = self.give_up(offset, length);
                Ok(())
            }
            Operation::WriteZeroes { mode, .. } => self.zero(offset, length, mode),
            Operation::Flush => Ok(()),
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
            !at.is_multiple_of(P) && self.request.engine.peek((at / P) as usize).is_backed()
        };
        if is_backed(offset) || is_backed(end) { self.context.may_wait() } else { Ok(()) }
    }

    fn zero(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<(), IoError> {
        self.look_at_ends(offset, length)?;
        let mut begun = mode == ZeroMode::MayPunch && self.give_up(offset, length);
        zeroed_parts(offset, length, mode).try_for_each(|part| {
            let done = if part.is_whole() {
                self.request.engine.store_zeroes(self.context.cpu, part.page as usize);
                Ok(())
            } else {
                let mut zero = |page: &mut Page| page[part.within.clone()].fill(0);
                self.modify(&part, begun, &mut zero)
            };
            begun = true;
            self.count_write(done)
        })
    }

    /// Empties the whole pages of a range; returns whether there are any.
    fn give_up(&self, offset: u64, length: u64) -> bool {
        let (first, end) = (offset.div_ceil(P), (offset + length) / P);
        if first < end {
            let (cpu, count) = (self.context.cpu, end - first);
            self.request.engine.discard(cpu, first as usize, count as usize);
            self.request.counts.add(cpu, Count::NotifyFree, count as i64);
        }
        first < end
    }

    #[inline]
    fn count_write(&self, written: Result<(), IoError>) -> Result<(), IoError> {
        // The caller repeats the operation, and it is counted then.
        if written == Err(IoError::WouldBlock) {
            return written;
        }
        self.request.count_write(written)
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
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
    fn load(&self, offset: u64, into: &mut [u8], loads: &mut Loads) -> Result<(), IoError> {
        let Pass { request, context } = self;
        let mut count = |loaded: Result<(), IoError>| {
            loads.pages += 1;
            loads.failed += i64::from(loaded.is_err());
            loaded
        };
        let mut fetches: Option<Fetches<'_, '_, D>> = None;
        let (length, mut rest) = (into.len() as u64, into);
        for part in parts(offset, length) {
            let (piece, after) = rest.split_at_mut(part.of_range.len());
            rest = after;
            let index = part.page as usize;
            let Ok(page) = <&mut Page>::try_from(&mut *piece) else {
                let mut page = [0; PAGE_SIZE];
                let loaded = match request.load(index, &mut page) {
                    Ok(Loaded::Backed(_)) => {
                        context.may_wait()?;
                        request.fetch(index, &mut page)
                    }
                    loaded => loaded.map(|_| ()),
                };
                count(loaded)?;
                piece.copy_from_slice(&page[part.within.clone()]);
                continue;
            };
            let mut loaded = request.load(index, page);
            if let (Ok(Loaded::Backed(_)), None) = (&loaded, &fetches) {
                context.may_wait()?;
                // The second look comes after the reader entered: the block cannot become another
                // page's now.
                fetches = Some(Fetches::new(request)?);
                loaded = request.load(index, page);
            }
            match (loaded, &mut fetches) {
                (Ok(Loaded::Backed(place)), Some(fetches)) => {
                    if let Ok(page) = <&mut Page>::try_from(piece) {
                        fetches.add(place, page);
                    }
                    if fetches.is_full() {
                        fetches.carry_out()?;
                    }
                }
                (loaded, _) => count(loaded.map(|_| ()))?,
            }
        }
        fetches.map_or(Ok(()), |mut fetches| fetches.carry_out())
    }

    #[inline]
    fn write_part(&self, part: &Part, from: &[u8]) -> Result<(), IoError> {
        if let Ok(page) = <&Page>::try_from(from) {
            return self.request.store(part.page as usize, page);
        }
        let mut put = |page: &mut Page| page[part.within.clone()].copy_from_slice(from);
        self.modify(part, part.of_range.start > 0, &mut put)
    }

    /// Changes a part of a page. If the operation has `begun` to change other pages, it waits for
    /// this one even under `Wait::No`: the page was written back after the look at the ends.
    fn modify(
        &self,
        part: &Part,
        begun: bool,
        edit: &mut dyn FnMut(&mut Page),
    ) -> Result<(), IoError> {
        let Pass { request, context } = self;
        let index = part.page as usize;
        match request.modify(index, None, edit)? {
            Loaded::Page => return Ok(()),
            Loaded::Backed(_) if begun => {}
            Loaded::Backed(_) => context.may_wait()?,
        }
        request.fetch_and_modify(index, edit)
    }
}

/// The parts of a zeroed range that are not discarded: all parts, or only the partial pages at its
/// ends.
fn zeroed_parts(offset: u64, length: u64, mode: ZeroMode) -> impl Iterator<Item = Part> {
    let (end, whole_from, whole_end) =
        (offset + length, offset.next_multiple_of(P), (offset + length) / P * P);
    let (head, tail) = if mode == ZeroMode::KeepAllocated || whole_from >= whole_end {
        ((offset, length), (end, 0))
    } else {
        ((offset, whole_from - offset), (whole_end, end - whole_end))
    };
    parts(head.0, head.1).chain(parts(tail.0, tail.1))
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
