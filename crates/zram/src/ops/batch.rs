//! Pages on their way to the backing device, many at a time.

use alloc::format;

use block::IoError;
use control::{ControlError, Errno};
use pagelog::{Backing, Run};
use units::Page;

use crate::counts::Count;
use crate::disk::{Disk, Moved};
use crate::engine::{Engine, Select};
use crate::ops::write_error::{no_memory, write_error};
use crate::resources::CPU;

/// Pages on their way to the backing device.
pub(crate) struct Batch<'a> {
    disk: &'a Disk,
    engine: &'a Engine,
    backing: &'a dyn Backing,
    run: Run,
    /// The most pages of the run.
    pages: usize,
    /// The device has a log.
    is_log: bool,
    /// Pages stay compressed, as in memory: always in a log.
    compressed: bool,
    /// What came of the writes so far.
    pub(crate) moved: Moved,
}

impl<'a> Batch<'a> {
    /// A batch with the memory of one that is done with, or new memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(
        disk: &'a Disk,
        engine: &'a Engine,
        backing: &'a dyn Backing,
        used: Option<Run>,
    ) -> Result<Batch<'a>, ControlError> {
        let pages = backing.batch().unwrap_or(disk.writeback_batch() as usize);
        let run = backing.run(pages, used).map_err(|_| no_memory())?;
        let (is_log, moved) = (backing.is_log(), Moved::Nothing);
        let compressed = is_log || disk.compressed_writeback();
        Ok(Batch { disk, engine, backing, run, pages, is_log, compressed, moved })
    }

    /// Its memory, for another batch.
    pub(crate) fn into_run(self) -> Run {
        self.run
    }

    /// Writes the candidates that are selected. The caller holds `post` and is no reader.
    ///
    /// # Errors
    /// `EIO` when the limit is used up or writes failed, `ENOSPC` when the backing device is full.
    /// The other pages are written.
    pub(crate) fn write_all(
        &mut self,
        candidates: &[usize],
        select: Select,
    ) -> Result<(), ControlError> {
        let mut outcome = Ok(());
        for chunk in candidates.chunks(self.pages) {
            if !self.backing.has_room() {
                return Err(write_error(IoError::NoSpace, self.backing.path()));
            }
            let wanted = chunk.len() as u64;
            let (granted, charged) = self.disk.spend(wanted);
            chunk[..granted as usize].iter().for_each(|index| self.fill(*index, select));
            let (written, result) = self.write();
            if charged && granted > written {
                self.disk.refund(granted - written);
            }
            outcome = result.and(outcome);
            if granted < wanted {
                let message = format!("the writeback_limit of {} is used up", self.disk.name());
                return Err(ControlError::new(Errno::EIO, message));
            }
            if outcome.as_ref().is_err_and(|error| error.errno == Errno::ENOSPC) {
                return outcome;
            }
        }
        outcome
    }

    /// Adds a page to the run if it is selected.
    fn fill(&mut self, index: usize, select: Select) {
        if !self.engine.mark(index, |slot| select.admits(slot)) {
            return;
        }
        let reader = self.disk.readers.enter(CPU);
        let exported = self.engine.export(&reader, CPU, index, self.run.page(), self.compressed);
        match exported {
            Ok(Some(form)) if self.is_log && !form.is_compressed() && !form.huge => {
                // A page of an extent.
                let page: Page = *self.run.page();
                let form = self.engine.pack_page(&reader, CPU, &page, self.run.page());
                self.run.add(index, form);
            }
            Ok(Some(form)) => self.run.add(index, form),
            // The page was used meanwhile, or is unreadable; its readers get the error then.
            not => {
                self.engine.unmark(index);
                self.moved = self.moved.max(Moved::of(not.is_ok(), false));
            }
        }
    }

    /// Writes the run. Returns how many pages were written, also if it failed.
    fn write(&mut self) -> (u64, Result<(), ControlError>) {
        let Batch { disk, engine, backing, run, moved, .. } = self;
        if run.entries().is_empty() {
            return (0, Ok(()));
        }
        let mut written = 0;
        let mut commit = |run: &mut Run| {
            for entry in run.entries_mut() {
                let Some(place) = entry.written() else { continue };
                written += 1;
                disk.counts.add(CPU, Count::WritebackWrites, 1);
                let _reader = disk.readers.enter(CPU);
                // Otherwise the page was used meanwhile, and stays in memory.
                entry.is_named = engine.finish_writeback(CPU, entry.index, place);
                *moved = (*moved).max(Moved::of(true, entry.is_named));
            }
        };
        let outcome = backing.write(*engine, CPU, run, disk.now(), &mut commit);
        run.entries().iter().for_each(|entry| _ = engine.unmark(entry.index));
        run.clear();
        (written, outcome.map_err(|error| write_error(error, backing.path())))
    }
}
