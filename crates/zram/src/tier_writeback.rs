//! Writeback of pages that were not used for long, by the thread of the tiers: the same writes as
//! those of an administrator, within the bytes a day that are allowed.

use alloc::sync::Arc;
use core::ops::Range;

use block::{Context, IoError};
use control::ControlError;
use pagelog::{RUN_PAGES, Run};
use units::PAGE_SIZE;

use crate::backing::Backing;
use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::page_ops::Select;
use crate::post_processing::{Batch, Way};
use crate::resources::Design;
use crate::slot::Kind;
use crate::tier_moves::{CPU, OUT};
use crate::tier_out::Going;
use crate::tier_walk::TierWalk;
use crate::write_error::no_memory;
use crate::write_log::LogBatch;

impl<D: Design> Disk<D> {
    /// Brings back the pages that the last pass found on the backing device and in use, and writes
    /// back those that it found unused for long. The caller holds `post` and is no reader.
    pub(crate) fn carry_out(
        &self,
        engine: &Arc<Engine<D>>,
        walk: &mut TierWalk,
        has_time: &dyn Fn() -> bool,
    ) {
        for at in 0..walk.out.coming.len() {
            let (index, memory) = walk.out.coming[at];
            // Without space, or while the device fails, it stays.
            let is_up = self.bring_back(engine, index).unwrap_or(false);
            let is_out = matches!(engine.peek(index).kind(), Kind::WrittenBack(_));
            walk.remember(index, if is_out { memory.in_tier(OUT) } else { memory });
            walk.count_back(is_up);
        }
        walk.out.coming.clear();
        let Some(backing) = engine.backing() else { return };
        let mut at = 0;
        while at < walk.out.going.len() {
            let wanted = self.affordable(backing, walk, at);
            if wanted == 0 || !self.is_above_target(engine) {
                break;
            }
            let failed = self.write_going(engine, backing, walk, at..at + wanted).is_err();
            at += wanted;
            if failed || !has_time() {
                break;
            }
        }
        walk.out.going.clear();
    }

    /// Brings a page from the backing device to memory. Returns whether it did: not if it is used
    /// meanwhile. The caller is no reader.
    ///
    /// # Errors
    /// `NoSpace`, `NoMemory`, `NotReady`, those of the backing device; the page stays there.
    fn bring_back(&self, engine: &Arc<Engine<D>>, index: usize) -> Result<bool, IoError> {
        let fetcher = self.fetcher(engine.clone(), CPU);
        // As long as this reader lives, the place has the bytes of this page.
        let _reading = fetcher.backing()?.reading(CPU);
        let Kind::WrittenBack(place) = engine.peek(index).kind() else { return Ok(false) };
        let (mut block, mut page) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        fetcher.fetch_block(index, place, &mut block)?;
        self.begin(Context::waiting(CPU), (index as u64, 1), |request| {
            // The device may have shrunk meanwhile.
            if !Arc::ptr_eq(request.shared, engine) {
                return Err(IoError::NotReady);
            }
            match request.unpack((index, place), &block, &mut page)? {
                true => engine.keep(request.reader, CPU, index, (place, &page)),
                false => Ok(false),
            }
        })?
    }

    /// How many of the pages from `at` on may be written together now.
    fn affordable(&self, backing: &Backing, walk: &mut TierWalk, at: usize) -> usize {
        let batch = match backing {
            Backing::Pages(_) => self.writeback_batch() as usize,
            Backing::Log(_) => RUN_PAGES,
        };
        let limit = match self.writeback_limit() {
            (pages, true) => usize::try_from(pages).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let left = walk.out.going.len() - at;
        walk.out.affordable((batch, left), self.now()).min(limit)
    }

    fn is_above_target(&self, engine: &Engine<D>) -> bool {
        let memory = engine.pool().stats().frames * PAGE_SIZE as u64;
        memory > self.budgets().target
    }

    /// Writes some of the pages back that leave: those that were not used meanwhile.
    ///
    /// # Errors
    /// Those of [`Disk::writeback`]. They are counted.
    fn write_going(
        &self,
        engine: &Engine<D>,
        backing: &Backing,
        walk: &mut TierWalk,
        range: Range<usize>,
    ) -> Result<(), ControlError> {
        let written = || match backing {
            Backing::Pages(_) => self.counts.sum(Count::WritebackWrites) * PAGE_SIZE as u64,
            Backing::Log(log) => log.stats().written_bytes,
        };
        let objects = || self.counts.sum(Count::ComprBytes);
        let (bytes, before) = (written(), objects());
        let outcome = self.try_to_write(engine, backing, walk, range.clone());
        let bytes = written().saturating_sub(bytes);
        walk.out.count(bytes, outcome.is_ok(), self.now());
        let mut moved = 0;
        for at in range {
            let going = walk.out.going[at];
            if let Kind::WrittenBack(_) = engine.peek(going.index).kind() {
                walk.remember(going.index, going.memory);
                moved += 1;
            }
        }
        walk.count_out(moved, before.saturating_sub(objects()));
        outcome
    }

    fn try_to_write(
        &self,
        engine: &Engine<D>,
        backing: &Backing,
        walk: &mut TierWalk,
        range: Range<usize>,
    ) -> Result<(), ControlError> {
        let out = &mut walk.out;
        out.chosen.clear();
        out.chosen.try_reserve_exact(range.len()).map_err(|_| no_memory())?;
        let is_unused = |it: &&Going| engine.last_access(it.index) == Some(it.last_used);
        out.chosen.extend(out.going[range].iter().filter(is_unused).map(|it| it.index));
        let log = match backing {
            Backing::Pages(blocks) => {
                let mut way = Way::Pages(Batch::new(self, engine, blocks)?);
                return way.write_all(&out.chosen, Select::Any);
            }
            Backing::Log(log) => log,
        };
        let run = match out.run.take() {
            Some(run) => run,
            None => Run::new(RUN_PAGES).map_err(|_| no_memory())?,
        };
        let mut batch = LogBatch::with(self, engine, log, run);
        let outcome = batch.write_all(&out.chosen, Select::Any);
        out.run = Some(batch.into_run());
        outcome
    }
}
