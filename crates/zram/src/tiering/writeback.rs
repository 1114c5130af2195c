//! Writeback of pages that were not used for long, by the thread of the tiers: the same writes as
//! those of an administrator, within the bytes a day that are allowed.

use alloc::sync::Arc;
use core::ops::Range;

use block::IoError;
use control::ControlError;
use pagelog::Backing;
use tiers::{OUT, Spell};
use units::PAGE_SIZE;

use crate::counts::Count;
use crate::disk::Disk;
use crate::engine::{Engine, Fetched, Kind, Select};
use crate::ops::{Batch, no_memory};
use crate::resources::CPU;
use crate::tiering::out::Going;
use crate::tiering::walk::TierWalk;

impl Disk {
    /// Brings back the pages that the last pass found on the backing device and in use, and writes
    /// back those that it found unused for long. The caller holds `post` and is no reader.
    pub(crate) fn carry_out(&self, engine: &Arc<Engine>, walk: &mut TierWalk, spell: Spell<'_>) {
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
            let wanted = self.affordable(&**backing, walk, at);
            if wanted == 0 || !self.is_above_target(engine) {
                break;
            }
            let failed = self.write_going(engine, &**backing, walk, at..at + wanted).is_err();
            at += wanted;
            if failed || !spell.has_time() {
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
    fn bring_back(&self, engine: &Arc<Engine>, index: usize) -> Result<bool, IoError> {
        let fetcher = self.fetcher(engine.clone(), 0, CPU);
        // As long as this reader lives, the place has the bytes of this page.
        let _reading = fetcher.backing()?.reading(CPU);
        let Kind::WrittenBack(place) = engine.peek(index).kind() else { return Ok(false) };
        let mut page = [0; PAGE_SIZE];
        if !fetcher.fetch_at(index as u64, place, &mut page)? {
            return Ok(false);
        }
        // The engine is still the device's: the caller holds `post`.
        engine.keep(&self.readers.enter(CPU), CPU, index, Fetched { place, page: &page })
    }

    /// How many of the pages from `at` on may be written together now.
    fn affordable(&self, backing: &dyn Backing, walk: &mut TierWalk, at: usize) -> usize {
        let batch = backing.batch().unwrap_or(self.writeback_batch() as usize);
        let limit = match self.writeback_limit() {
            (pages, true) => usize::try_from(pages).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let left = walk.out.going.len() - at;
        walk.out.affordable(batch, left, self.now()).min(limit)
    }

    fn is_above_target(&self, engine: &Engine) -> bool {
        let memory = engine.pool().stats().frames * PAGE_SIZE as u64;
        memory > self.budgets().target
    }

    /// Writes some of the pages back that leave: those that were not used meanwhile.
    ///
    /// # Errors
    /// Those of [`Disk::writeback`]. They are counted.
    fn write_going(
        &self,
        engine: &Engine,
        backing: &dyn Backing,
        walk: &mut TierWalk,
        range: Range<usize>,
    ) -> Result<(), ControlError> {
        let objects = || self.counts.sum(Count::ComprBytes);
        let (bytes, before) = (backing.written_bytes(), objects());
        let outcome = self.try_to_write(engine, backing, walk, range.clone());
        let bytes = backing.written_bytes().saturating_sub(bytes);
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
        engine: &Engine,
        backing: &dyn Backing,
        walk: &mut TierWalk,
        range: Range<usize>,
    ) -> Result<(), ControlError> {
        let out = &mut walk.out;
        out.chosen.clear();
        out.chosen.try_reserve_exact(range.len()).map_err(|_| no_memory())?;
        let is_unused = |it: &&Going| engine.last_access(it.index) == Some(it.last_used);
        out.chosen.extend(out.going[range].iter().filter(is_unused).map(|it| it.index));
        let mut batch = Batch::new(self, engine, backing, out.run.take())?;
        let outcome = batch.write_all(&out.chosen, Select::Any);
        out.run = Some(batch.into_run());
        outcome
    }
}
