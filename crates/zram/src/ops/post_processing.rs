//! Post-processing that an administrator starts: idle marks, recompression, writeback. One run at a
//! time per device. Readers and writers go on meanwhile, and a page that they use is left alone.
//!
//! Source: Linux `Documentation/admin-guide/blockdev/zram.rst`, "writeback" and "recompression".

use alloc::{format, vec::Vec};
use core::ops::Range;

use block::IoError;
use control::{ControlError, Errno};
use objects::{Object, Recompressed};
use pagelog::Backing;
use units::PAGE_SIZE;

use crate::disk::Disk;
use crate::disk::{Settings, Which, find};
use crate::engine::Engine;
use crate::engine::Kind;
use crate::engine::{Recompression, Select};
use crate::ops::batch::Batch;
use crate::ops::write_error::{ended_early, no_memory};
use crate::resources::CPU;

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

impl Disk {
    /// Marks pages idle: all pages, or those that were not used in the last `seconds`. Pages used
    /// since lose the mark. Same-filled pages and pages on the backing device are skipped.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised, or when `seconds` are given and times of last
    /// use are not kept.
    pub fn mark_idle(&self, seconds: Option<u32>) -> Result<(), ControlError> {
        let _post = self.family().post.lock();
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
        engine.each(self.window(), |index, _| {
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

    /// Compresses pages again with a stronger codec, the largest objects first. Keeps results that
    /// take less memory. Runs on the calling thread.
    ///
    /// # Errors
    /// `EINVAL` for a device that is not initialised, a threshold that no object reaches or a codec
    /// that the device does not have; `ENOMEM` or `EIO` when it ended early.
    pub fn recompress(&self, what: &Recompress) -> Result<(), ControlError> {
        let _post = self.family().post.lock();
        let engine = self.ready_engine()?;
        let huge = engine.pool().raw_threshold();
        if what.threshold >= huge {
            let message = format!("a threshold is below {huge} bytes, not {}", what.threshold);
            return Err(ControlError::invalid(message));
        }
        let priority = find(&self.family().settings.lock(), &what.which, 1)? as u8;
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
        let all = 0..self.reach();
        for index in self.candidates(&engine, core::slice::from_ref(&all), what.select)? {
            if left == 0 {
                break;
            }
            let mut once = || engine.recompress(&self.readers.enter(CPU), CPU, index, how);
            match self.compacting(&engine, &mut once) {
                Ok(Recompressed::Skipped | Recompressed::InUse) => {}
                Ok(Recompressed::NoSmaller | Recompressed::Done { .. }) => left -= 1,
                // Only this page is bad. Its readers get the error.
                Err(IoError::Corrupt) => {}
                Err(error) => return Err(ended_early("compressed again", error)),
            }
        }
        Ok(())
    }

    /// Makes something smaller. At the limit, what became so before has left holes in all frames:
    /// objects are put together as long as frames come free, and it is tried again. The calling
    /// thread is no reader but in `once`.
    pub(crate) fn compacting<T>(
        &self,
        engine: &Engine,
        once: &mut dyn FnMut() -> Result<T, IoError>,
    ) -> Result<T, IoError> {
        loop {
            match once() {
                Err(IoError::NoSpace) if engine.compact(CPU, self.reach()) > 0 => {}
                done => return done,
            }
        }
    }

    /// Checks that the device has a backing device.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised, `ENODEV` without a backing device.
    pub fn can_write_back(&self) -> Result<(), ControlError> {
        self.backing_of(&*self.ready_engine()?).map(drop)
    }

    pub(crate) fn backing_of<'a>(
        &self,
        engine: &'a Engine,
    ) -> Result<&'a dyn Backing, ControlError> {
        engine.backing().map(|backing| &**backing).ok_or_else(|| {
            ControlError::new(Errno::ENODEV, format!("{} has no backing device", self.name()))
        })
    }

    /// Writes pages back, the largest objects first, in batches. Runs on the
    /// calling thread. A page whose write fails stays in memory.
    ///
    /// # Errors
    /// `EINVAL` when the device is not initialised, `ENODEV` without a backing device, `ERANGE` for
    /// pages beyond the end, `ENOSPC` when the backing device is full, `EIO` when the limit is used
    /// up or writes failed; it returns the last error, and the other pages are done.
    pub fn writeback(&self, what: &Writeback) -> Result<(), ControlError> {
        let _post = self.family().post.lock();
        let engine = self.ready_engine()?;
        let backing = self.backing_of(&engine)?;
        let (base, mut named) = (self.window().start, Vec::new());
        for (first, last) in &what.pages {
            if first > last || *last >= self.pages() as u64 {
                let message = format!(
                    "pages {first} to {last} are none of the {} of {}",
                    self.pages(),
                    self.name()
                );
                return Err(ControlError::new(Errno::ERANGE, message));
            }
            named.push(base + *first as usize..base + *last as usize + 1);
        }
        let mut batch = Batch::new(self, &engine, backing, None)?;
        let candidates = self.candidates(&engine, &apart(named), Select::Any)?;
        let mut outcome = batch.write_all(&candidates, Select::Any);
        if let Some(select) = what.select {
            let all = 0..self.reach();
            let candidates = self.candidates(&engine, core::slice::from_ref(&all), select)?;
            outcome = batch.write_all(&candidates, select).and(outcome);
        }
        outcome
    }

    /// The pages of a kind, those with the largest objects first: sorted in steps of 64 bytes, and
    /// by number within a step. The ranges do not overlap, so each page appears once.
    fn candidates(
        &self,
        engine: &Engine,
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
        let mut settings = self.family().settings.lock();
        if !settings.writeback_limited {
            return (wanted, false);
        }
        let got = wanted.min(settings.writeback_limit);
        let left = settings.writeback_limit - got;
        self.set_writeback_left(&mut settings, left);
        (got, true)
    }

    /// Gives back pages that were charged and not written.
    pub(crate) fn refund(&self, pages: u64) {
        let mut settings = self.family().settings.lock();
        let left = settings.writeback_limit.saturating_add(pages);
        self.set_writeback_left(&mut settings, left);
    }

    /// Sets how many pages may still be written back, also for another process.
    pub(crate) fn set_writeback_left(&self, settings: &mut Settings, pages: u64) {
        settings.writeback_limit = pages;
        self.with_engine(|engine| {
            engine.record().inspect(|record| record.set_writeback_left(pages));
        });
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
