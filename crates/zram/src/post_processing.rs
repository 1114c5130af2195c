//! Post-processing that an administrator starts: idle marks, recompression, writeback. One run at a
//! time per device. Readers and writers go on meanwhile, and a page that they use is left alone.
//!
//! Source: Linux `Documentation/admin-guide/blockdev/zram.rst`, "writeback" and "recompression".

use alloc::{format, vec::Vec};
use core::ops::Range;

use block::{IoError, Job, Operation};
use control::{ControlError, Errno};
use objects::Object;
use pagelog::Backed;
use units::{Cpu, PAGE_SIZE, Page};

use crate::backing::Backing;
use crate::blocks::BackingBlocks;
use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::page_ops::{Export, Recompressed, Recompression, Select};
use crate::resources::Design;
use crate::settings::{Which, find};
use crate::slot::{Kind, Slot};
use crate::write_error::{no_memory, write_error};
use crate::write_log::LogBatch;

/// The CPU of the thread that goes through all pages; any CPU will do.
const CPU: Cpu = Cpu(0);

/// The pages to write back.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Writeback {
    /// The kind of pages; `None` if pages are named.
    pub select: Option<Select>,
    /// The numbers of pages, as ranges with both ends included.
    pub pages: Vec<(u64, u64)>,
}

/// The pages to compress again, and the way.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Recompress {
    /// The kind of pages.
    pub select: Select,
    /// Only objects of at least this many bytes, and only results below it; 0 for any.
    pub threshold: usize,
    /// The most tries; `None` for no limit.
    pub max_pages: Option<u64>,
    /// The codec; by default the codec of priority 1.
    pub which: Which,
}

/// The memory of one page, aligned for O_DIRECT.
#[repr(C, align(4096))]
pub(crate) struct Buffer(pub(crate) Page);

impl<D: Design> Disk<D> {
    /// Marks pages idle: all pages, or those that were not used in the last `seconds`. Pages used
    /// since lose the mark. Same-filled pages and pages on the backing device are skipped.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised, or when `seconds` are given and times of last
    /// use are not kept.
    pub fn mark_idle(&self, seconds: Option<u32>) -> Result<(), ControlError> {
        let _post = self.post.lock();
        let engine = self.ready_engine()?;
        if seconds.is_some() && !self.tracks_access() {
            let message = format!(
                "{} keeps no times of last use; write 1 to track_access before its size is set, \
                 or mark all",
                self.name()
            );
            return Err(ControlError::invalid(message));
        }
        let now = self.now();
        engine.each(0..self.pages(), |index, _| {
            let idle = match seconds {
                None => true,
                Some(seconds) => {
                    let last = engine.last_access(index).unwrap_or(now);
                    now.saturating_sub(last) >= seconds
                }
            };
            engine.alter(index, |slot| {
                let new = slot.with_idle(idle);
                (Select::Any.admits(slot) && new != slot).then_some(new)
            });
        });
        Ok(())
    }

    /// Reads every page on the backing device and checks that it is as it was written. Readers and
    /// writers go on meanwhile. Returns the number of pages that were read. Runs on the calling
    /// thread, for as long as it takes to read the device.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised or has no backing device; `ENOTSUP` when pages
    /// are written back without a checksum; `EIO` when pages are bad. The message says how many and
    /// names the first of their blocks.
    pub fn scrub(&self) -> Result<u64, ControlError> {
        let engine = self.ready_engine()?;
        let backing = self.backing_of(&engine)?;
        let mut first = None;
        let found = backing.device().scrub(CPU, &mut |block| _ = first.get_or_insert(block));
        match (found, first) {
            (Ok(found), None) => Ok(found.checked),
            (Ok(found), Some(first)) => {
                let message = format!(
                    "{} of {} pages in {} are not as they were written; the first is block {first}",
                    found.bad,
                    found.checked,
                    backing.path()
                );
                Err(ControlError::new(Errno::EIO, message))
            }
            (Err(IoError::Unsupported), _) => {
                let message = format!("pages are written to {} unsealed", backing.path());
                Err(ControlError::new(Errno::ENOTSUP, message))
            }
            (Err(error), _) => {
                let message = format!("{} cannot be read: {error}", backing.path());
                Err(ControlError::new(Errno(error.errno()), message))
            }
        }
    }

    /// Compresses pages again with a stronger codec, the largest objects first. Keeps results that
    /// take less memory. Runs on the calling thread.
    ///
    /// # Errors
    /// `EINVAL` for a device that is not initialised, a threshold that no object reaches or a codec
    /// that the device does not have; `ENOMEM` or `EIO` when it ended early.
    pub fn recompress(&self, what: &Recompress) -> Result<(), ControlError> {
        let _post = self.post.lock();
        let engine = self.ready_engine()?;
        let huge = engine.pool().raw_threshold();
        if what.threshold >= huge {
            let message = format!("a threshold is below {huge} bytes, not {}", what.threshold);
            return Err(ControlError::invalid(message));
        }
        let priority = find(&self.settings.lock(), &what.which, 1)? as u8;
        if priority == 0 {
            return Err(ControlError::invalid(
                "pages are compressed again by priorities 1 to 3, not 0",
            ));
        }
        let chosen = self.chosen_algorithms();
        let how = Recompression {
            priority,
            select: what.select,
            threshold: what.threshold,
            last: chosen.iter().skip(usize::from(priority) + 1).all(Option::is_none),
        };
        let mut left = what.max_pages.unwrap_or(u64::MAX);
        let all = 0..self.pages();
        for index in self.candidates(&engine, core::slice::from_ref(&all), what.select)? {
            if left == 0 {
                break;
            }
            let reader = self.readers.enter(CPU);
            match engine.recompress(&reader, CPU, index, how) {
                Ok(Recompressed::Skipped) => {}
                Ok(Recompressed::InVain | Recompressed::Smaller) => left -= 1,
                // Only this page is bad. Its readers get the error.
                Err(IoError::Corrupt) => {}
                Err(error) => return Err(again_error(error)),
            }
        }
        Ok(())
    }

    /// Checks that the device has a backing device.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised, `ENODEV` without a backing device.
    pub fn can_write_back(&self) -> Result<(), ControlError> {
        self.backing_of(&*self.ready_engine()?).map(drop)
    }

    fn backing_of<'a>(&self, engine: &'a Engine<D>) -> Result<&'a Backing, ControlError> {
        engine.backing().map(|backing| &**backing).ok_or_else(|| {
            ControlError::new(Errno::ENODEV, format!("{} has no backing device", self.name()))
        })
    }

    /// Writes pages back, the largest objects first, in batches of the set size. Runs on the
    /// calling thread. A page whose write fails stays in memory.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised, `ENODEV` without a backing device, `ERANGE` for
    /// pages beyond the end, `ENOSPC` when the backing device is full, `EIO` when the limit is used
    /// up or writes failed; it returns the last error, and the other pages are done.
    pub fn writeback(&self, what: &Writeback) -> Result<(), ControlError> {
        let _post = self.post.lock();
        let engine = self.ready_engine()?;
        let backing = self.backing_of(&engine)?;
        let mut named = Vec::new();
        for (first, last) in &what.pages {
            if first > last || *last >= self.pages() as u64 {
                let message = format!(
                    "pages {first} to {last} are none of the {} of {}",
                    self.pages(),
                    self.name()
                );
                return Err(ControlError::new(Errno::ERANGE, message));
            }
            named.push(*first as usize..*last as usize + 1);
        }
        let mut batch = match backing {
            Backing::Pages(blocks) => Way::Pages(Batch::new(self, &engine, blocks)?),
            Backing::Log(log) => Way::Log(LogBatch::new(self, &engine, log)?),
        };
        let candidates = self.candidates(&engine, &apart(named), Select::Any)?;
        let mut outcome = batch.write_all(&candidates, Select::Any);
        if let Some(select) = what.select {
            let all = 0..self.pages();
            let candidates = self.candidates(&engine, core::slice::from_ref(&all), select)?;
            outcome = batch.write_all(&candidates, select).and(outcome);
        }
        outcome
    }

    /// The pages of a kind, those with the largest objects first: sorted in steps of 64 bytes, and
    /// by number within a step. The ranges do not overlap, so each page appears once.
    fn candidates(
        &self,
        engine: &Engine<D>,
        ranges: &[Range<usize>],
        select: Select,
    ) -> Result<Vec<usize>, ControlError> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut full = Ok(());
        for range in ranges {
            engine.each(range.clone(), |index, slot| {
                if !select.admits(slot) || full.is_err() {
                    return;
                }
                let length = match slot.kind() {
                    Kind::Stored(Object::Compressed { length, .. }) => length,
                    // Its object stays while other pages name it.
                    Kind::Shared(_) => 0,
                    _ => PAGE_SIZE,
                };
                full = found.try_reserve(1);
                if full.is_ok() {
                    found.push((PAGE_SIZE - length / 64, index));
                }
            });
        }
        full.map_err(|_| no_memory())?;
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, index)| index).collect())
    }

    /// Takes up to `wanted` pages from the writeback limit. Returns how many pages may be written,
    /// and whether they were charged: they are not while the limit is off.
    pub(crate) fn spend(&self, wanted: u64) -> (u64, bool) {
        let mut settings = self.settings.lock();
        if !settings.writeback_limited {
            return (wanted, false);
        }
        let got = wanted.min(settings.writeback_limit);
        settings.writeback_limit -= got;
        (got, true)
    }

    /// Gives back pages that were charged and not written.
    pub(crate) fn refund(&self, pages: u64) {
        let mut settings = self.settings.lock();
        settings.writeback_limit = settings.writeback_limit.saturating_add(pages);
    }
}

/// Merges ranges so that they do not overlap. A page in two ranges could be exported twice, and its
/// older contents could then replace the newer ones.
pub(crate) fn apart(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| {
        let one = next.start <= kept.end;
        if one {
            kept.end = kept.end.max(next.end);
        }
        one
    });
    ranges
}

/// The way to the backing device.
pub(crate) enum Way<'a, D: Design> {
    Pages(Batch<'a, D>),
    Log(LogBatch<'a, D>),
}

impl<D: Design> Way<'_, D> {
    /// Writes the candidates that are selected. The caller holds `post`.
    ///
    /// # Errors
    /// Those of [`Disk::writeback`].
    pub(crate) fn write_all(
        &mut self,
        candidates: &[usize],
        select: Select,
    ) -> Result<(), ControlError> {
        match self {
            Way::Pages(batch) => batch.write_all(candidates, select),
            Way::Log(batch) => batch.write_all(candidates, select),
        }
    }
}

/// Pages on their way to the blocks of a backing device.
pub(crate) struct Batch<'a, D: Design> {
    disk: &'a Disk<D>,
    engine: &'a Engine<D>,
    backing: &'a BackingBlocks,
    buffers: Vec<Buffer>,
    /// The pages in the buffers, and their places.
    pages: Vec<(usize, Backed)>,
    compressed: bool,
    /// The pages were charged to the writeback limit.
    charged: bool,
}

impl<'a, D: Design> Batch<'a, D> {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(
        disk: &'a Disk<D>,
        engine: &'a Engine<D>,
        backing: &'a BackingBlocks,
    ) -> Result<Batch<'a, D>, ControlError> {
        let size = disk.writeback_batch() as usize;
        let (mut buffers, mut pages) = (Vec::new(), Vec::new());
        buffers.try_reserve_exact(size).map_err(|_| no_memory())?;
        pages.try_reserve_exact(size).map_err(|_| no_memory())?;
        buffers.resize_with(size, || Buffer([0; PAGE_SIZE]));
        let compressed = disk.compressed_writeback();
        Ok(Batch { disk, engine, backing, buffers, pages, compressed, charged: false })
    }

    fn write_all(&mut self, candidates: &[usize], select: Select) -> Result<(), ControlError> {
        let mut outcome = Ok(());
        for chunk in candidates.chunks(self.buffers.len()) {
            let (granted, charged) = self.disk.spend(chunk.len() as u64);
            self.charged = charged;
            let filled = self.fill(&chunk[..granted as usize], select);
            self.refund(granted - self.pages.len() as u64);
            outcome = self.write().and(outcome);
            filled?;
            if granted < chunk.len() as u64 {
                let message = format!("the writeback_limit of {} is used up", self.disk.name());
                return Err(ControlError::new(Errno::EIO, message));
            }
        }
        outcome
    }

    /// Puts pages into buffers. An error ends the loop; the pages in the buffers are still written.
    fn fill(&mut self, chunk: &[usize], select: Select) -> Result<(), ControlError> {
        for index in chunk {
            let mark = |slot: Slot| select.admits(slot).then(|| slot.with_mark(true));
            if !self.engine.alter(*index, mark) {
                continue;
            }
            let Some(block) = self.backing.take() else {
                self.unmark(*index);
                let message = format!("{} is full", self.backing.path());
                return Err(ControlError::new(Errno::ENOSPC, message));
            };
            let bytes = &mut self.buffers[self.pages.len()].0;
            let to = Export { bytes, block, compressed: self.compressed };
            let reader = self.disk.readers.enter(CPU);
            match self.engine.export(&reader, CPU, *index, to) {
                Ok(Some(place)) => self.pages.push((*index, place)),
                // The page was used meanwhile, or is unreadable; its readers get the error then.
                Ok(None) | Err(_) => {
                    self.unmark(*index);
                    self.backing.give_back(block);
                }
            }
        }
        Ok(())
    }

    /// Writes the pages in the buffers.
    fn write(&mut self) -> Result<(), ControlError> {
        let mut jobs = Vec::new();
        let (pages, buffers) = (core::mem::take(&mut self.pages), &self.buffers);
        let mut outcome = jobs.try_reserve_exact(pages.len()).map_err(|_| no_memory());
        if outcome.is_ok() {
            jobs.extend(pages.iter().zip(buffers).map(|((_, place), buffer)| {
                let offset = u64::from(place.block) * PAGE_SIZE as u64;
                Job::new(Operation::Write { offset, from: &buffer.0 })
            }));
            self.backing.device().submit_all(CPU, &mut jobs);
        }
        for (n, (index, place)) in pages.iter().enumerate() {
            let written = match jobs.get(n) {
                Some(job) => job.result,
                None => Err(IoError::NoMemory),
            };
            if let Err(error) = written {
                self.unmark(*index);
                self.backing.give_back(place.block);
                self.refund(1);
                outcome = Err(write_error(error, self.backing.path()));
                continue;
            }
            self.disk.counts.add(CPU, Count::WritebackWrites, 1);
            let _reader = self.disk.readers.enter(CPU);
            if !self.engine.finish_writeback(CPU, *index, *place) {
                // The page was used meanwhile. It stays in memory, and no slot named the block.
                self.backing.give_back(place.block);
            }
        }
        drop(jobs);
        self.pages = pages;
        self.pages.clear();
        outcome
    }

    fn refund(&self, pages: u64) {
        if self.charged && pages > 0 {
            self.disk.refund(pages);
        }
    }

    fn unmark(&self, index: usize) {
        self.engine.alter(index, |slot| slot.is_marked().then(|| slot.with_mark(false)));
    }
}

fn again_error(error: IoError) -> ControlError {
    let errno = match error {
        IoError::NoSpace | IoError::NoMemory => Errno::ENOMEM,
        _ => Errno::EIO,
    };
    ControlError::new(errno, format!("pages were compressed again only in part: {error}"))
}
