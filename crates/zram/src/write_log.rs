//! Writeback of pages to a log: as they are in memory, compressed, many at a time.

use alloc::format;

use control::{ControlError, Errno};
use units::{Cpu, PAGE_SIZE, Page};

use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::page_ops::{Export, Select};
use crate::resources::Design;
use crate::slot::Slot;
use crate::write_error::{no_memory, write_error};
use pagelog::PageLog;
use pagelog::{RUN_PAGES, Run};

/// The CPU of the thread that goes through all pages; any CPU will do.
const CPU: Cpu = Cpu(0);

/// Pages on their way to a log.
pub(crate) struct LogBatch<'a, D: Design> {
    disk: &'a Disk<D>,
    engine: &'a Engine<D>,
    log: &'a PageLog,
    run: Run,
    /// The pages were charged to the writeback limit.
    charged: bool,
}

impl<'a, D: Design> LogBatch<'a, D> {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(
        disk: &'a Disk<D>,
        engine: &'a Engine<D>,
        log: &'a PageLog,
    ) -> Result<LogBatch<'a, D>, ControlError> {
        let run = Run::new(RUN_PAGES).map_err(|_| no_memory())?;
        Ok(LogBatch::with(disk, engine, log, run))
    }

    /// With the memory of an empty run of [`RUN_PAGES`].
    pub(crate) fn with(
        disk: &'a Disk<D>,
        engine: &'a Engine<D>,
        log: &'a PageLog,
        run: Run,
    ) -> LogBatch<'a, D> {
        LogBatch { disk, engine, log, run, charged: false }
    }

    /// The memory of its run, for another batch.
    pub(crate) fn into_run(self) -> Run {
        self.run
    }

    /// Writes the candidates that are selected. The caller holds `post`.
    ///
    /// # Errors
    /// `EIO` when the limit is used up or writes failed, `ENOSPC` when the log is full. The other
    /// pages are written.
    pub(crate) fn write_all(
        &mut self,
        candidates: &[usize],
        select: Select,
    ) -> Result<(), ControlError> {
        let mut outcome = Ok(());
        for chunk in candidates.chunks(RUN_PAGES) {
            let wanted = chunk.len() as u64;
            let (granted, charged) = self.disk.spend(wanted);
            self.charged = charged;
            chunk[..granted as usize].iter().for_each(|index| self.fill(*index, select));
            let written = self.write();
            self.refund(granted - written.0);
            outcome = written.1.and(outcome);
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
        let mark = |slot: Slot| select.admits(slot).then(|| slot.with_mark(true));
        if !self.engine.alter(index, mark) {
            return;
        }
        let to = Export { bytes: self.run.page(), block: 0, compressed: true };
        let reader = self.disk.readers.enter(CPU);
        match self.engine.export(&reader, CPU, index, to) {
            Ok(Some(form)) if usize::from(form.length) == PAGE_SIZE && !form.huge => {
                // A page of an extent.
                let page: Page = *self.run.page();
                let form = self.engine.pack_page(&reader, CPU, &page, self.run.page());
                self.run.add(index, form);
            }
            Ok(Some(form)) => self.run.add(index, form),
            // The page was used meanwhile, or is unreadable; its readers get the error then.
            Ok(None) | Err(_) => unmark(self.engine, index),
        }
    }

    /// Writes the run. Returns how many pages were written, also if it failed.
    fn write(&mut self) -> (u64, Result<(), ControlError>) {
        let LogBatch { disk, engine, log, run, .. } = self;
        if run.entries().is_empty() {
            return (0, Ok(()));
        }
        let mut written = 0;
        let commit = |run: &mut Run| written += commit(disk, engine, run);
        let outcome = pagelog::write((log, *engine), CPU, run, disk.now(), commit);
        run.entries().iter().for_each(|entry| unmark(engine, entry.index));
        run.clear();
        let path = log.path();
        (written, outcome.map_err(|error| write_error(error, path)))
    }

    fn refund(&self, pages: u64) {
        if self.charged && pages > 0 {
            self.disk.refund(pages);
        }
    }
}

/// Lets slots name what was written. Returns the number of pages.
fn commit<D: Design>(disk: &Disk<D>, engine: &Engine<D>, run: &mut Run) -> u64 {
    let mut written = 0;
    for entry in run.entries_mut() {
        let Some(place) = entry.written() else { continue };
        written += 1;
        disk.counts.add(CPU, Count::WritebackWrites, 1);
        let _reader = disk.readers.enter(CPU);
        // Otherwise the page was used meanwhile, and stays in memory.
        entry.is_named = engine.finish_writeback(CPU, entry.index, place);
    }
    written
}

fn unmark<D: Design>(engine: &Engine<D>, index: usize) {
    engine.alter(index, |slot| slot.is_marked().then(|| slot.with_mark(false)));
}
