//! Byte ranges as pages: whole ones go to the engine, parts are read, changed and replaced.

use core::ops::ControlFlow;

use block::{Extent, IoError, Operation, Visit, ZeroMode};
use sync::Reader;
use units::{Cpu, PAGE_SIZE, Page};

use crate::Disk;
use crate::counts::Count;
use crate::read_backing::Fetches;
use crate::store::{Loaded, PageStore};

const P: u64 = PAGE_SIZE as u64;

/// The pages a range lies in: the first, and how many. The range must not pass 2^64 - 1; one that
/// does is given as one that passes the end of every device.
pub(crate) fn touched_pages(offset: u64, length: u64) -> (u64, u64) {
    match offset.checked_add(length) {
        Some(end) => (offset / P, end.div_ceil(P) - offset / P),
        None => (u64::MAX, 1),
    }
}

/// A part of a range that lies in one page.
struct Part {
    page: u64,
    /// Where it begins and ends in the page.
    within: core::ops::Range<usize>,
    /// Where it begins and ends in the range.
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

/// Carries out an operation whose range lies within the engine. A failed page ends it; pages
/// before it stay done.
pub(crate) fn carry_out(
    disk: &Disk,
    engine: &dyn PageStore,
    reader: &Reader<'_>,
    cpu: Cpu,
    operation: Operation<'_>,
) -> Result<(), IoError> {
    let (offset, length) = operation.range();
    let wrote = |result| disk.count_pages(cpu, Count::Writes, Count::FailedWrites, result);
    match operation {
        Operation::Read { into, .. } => read(disk, engine, reader, cpu, offset, into)?,
        Operation::Write { from, .. } => {
            for part in parts(offset, length) {
                let piece = &from[part.of_range.clone()];
                wrote(write_part(disk, engine, reader, cpu, &part, piece))?;
            }
        }
        Operation::Discard { .. } => give_up(disk, engine, reader, cpu, offset, length),
        Operation::WriteZeroes { mode, .. } => {
            if mode == ZeroMode::MayPunch {
                give_up(disk, engine, reader, cpu, offset, length);
            }
            for part in zeroed_parts(offset, length, mode) {
                if part.is_whole() {
                    engine.store_zeroes(cpu, part.page as usize);
                    wrote(Ok(()))?;
                } else {
                    let mut zero = |page: &mut Page| page[part.within.clone()].fill(0);
                    wrote(modify(disk, engine, reader, cpu, part.page as usize, &mut zero))?;
                }
            }
        }
        Operation::Flush => {}
    }
    Ok(())
}

/// The parts of a zeroed range that are not given up: all of it, or only the ragged ends.
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

/// Empties the whole pages of a range.
fn give_up(
    disk: &Disk,
    engine: &dyn PageStore,
    reader: &Reader<'_>,
    cpu: Cpu,
    offset: u64,
    length: u64,
) {
    let (first, end) = (offset.div_ceil(P), (offset + length) / P);
    if first < end {
        engine.discard(reader, cpu, first as usize, (end - first) as usize);
        disk.counts.add(cpu, Count::NotifyFree, (end - first) as i64);
    }
}

fn read(
    disk: &Disk,
    engine: &dyn PageStore,
    reader: &Reader<'_>,
    cpu: Cpu,
    offset: u64,
    into: &mut [u8],
) -> Result<(), IoError> {
    let count = |result| disk.count_pages(cpu, Count::Reads, Count::FailedReads, result);
    let mut fetches: Option<Fetches<'_, '_>> = None;
    let (length, mut rest) = (into.len() as u64, into);
    for part in parts(offset, length) {
        let (piece, after) = rest.split_at_mut(part.of_range.len());
        rest = after;
        let index = part.page as usize;
        let Ok(page) = <&mut Page>::try_from(&mut *piece) else {
            let mut page = [0; PAGE_SIZE];
            let loaded = match engine.load(reader, cpu, index, &mut page) {
                Ok(Loaded::Backed(_)) => disk.fetch(engine, reader, cpu, index, &mut page),
                loaded => loaded.map(|_| ()),
            };
            count(loaded)?;
            piece.copy_from_slice(&page[part.within.clone()]);
            continue;
        };
        let mut loaded = engine.load(reader, cpu, index, page);
        if let (Ok(Loaded::Backed(_)), None) = (&loaded, &fetches) {
            // Looked at again now that its block cannot become another page's.
            fetches = Some(Fetches::new(engine, cpu)?);
            loaded = engine.load(reader, cpu, index, page);
        }
        match (loaded, &mut fetches) {
            (Ok(Loaded::Backed(place)), Some(fetches)) => {
                if let Ok(page) = <&mut Page>::try_from(piece) {
                    fetches.add(place, page);
                }
                if fetches.is_full() {
                    fetches.carry_out(disk, reader, cpu)?;
                }
            }
            (loaded, _) => count(loaded.map(|_| ()))?,
        }
    }
    fetches.map_or(Ok(()), |mut fetches| fetches.carry_out(disk, reader, cpu))
}

fn write_part(
    disk: &Disk,
    engine: &dyn PageStore,
    reader: &Reader<'_>,
    cpu: Cpu,
    part: &Part,
    from: &[u8],
) -> Result<(), IoError> {
    if let Ok(page) = <&Page>::try_from(from) {
        return engine.store(reader, cpu, part.page as usize, page);
    }
    let mut put = |page: &mut Page| page[part.within.clone()].copy_from_slice(from);
    modify(disk, engine, reader, cpu, part.page as usize, &mut put)
}

fn modify(
    disk: &Disk,
    engine: &dyn PageStore,
    reader: &Reader<'_>,
    cpu: Cpu,
    index: usize,
    edit: &mut dyn FnMut(&mut Page),
) -> Result<(), IoError> {
    match engine.modify(reader, cpu, index, None, edit)? {
        Loaded::Page => Ok(()),
        Loaded::Backed(_) => disk.fetch_and_modify(engine, reader, cpu, index, edit),
    }
}

/// Calls `visit` with the extents of whole pages that `extents` tells, cut to the range.
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
