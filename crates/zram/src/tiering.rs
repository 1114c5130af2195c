//! Tiers of a device: its pages move by themselves. See `walk`.

mod fingerprints;
mod moves;
mod out;
mod press;
mod stats;
mod walk;
mod writeback;

pub use fingerprints::fingerprint;
pub use stats::{TierCounts, TierStats};
pub(crate) use walk::{LOOKS, SAMPLES, TierWalk};

use alloc::format;

use control::{ControlError, Errno};
use tiers::{Budgets, WARM_CODEC};
use zcomp::Params;

use crate::counts::Count;
use crate::disk::{Disk, Moved};
use crate::engine::Engine;
use moves::Place;

impl Disk {
    /// Lets pages move by themselves, or ends that. A device whose codec of priority 1 was not
    /// chosen gets zstd there.
    ///
    /// # Errors
    /// `EINVAL` when the device has a size and keeps no times of last use; those of
    /// [`Disk::switch_algorithm`].
    pub fn set_auto(&self, on: bool) -> Result<(), ControlError> {
        if on && !self.tracks_access() {
            let message = format!(
                "{} keeps no times of last use, by which pages move; write 1 to track_access \
                 before its size is set",
                self.name()
            );
            return Err(ControlError::invalid(message));
        }
        if on && self.chosen_algorithms()[1].is_none() {
            let (name, level) = WARM_CODEC;
            self.switch_algorithm(1, name, Params::at_level(Some(level)))?;
        }
        self.family().settings.lock().auto = on;
        Ok(())
    }

    /// Whether pages move by themselves.
    #[must_use]
    pub fn auto(&self) -> bool {
        self.family().settings.lock().auto
    }

    /// Sets the budgets of the moves.
    ///
    /// # Errors
    /// `EINVAL` for a share of a CPU that is not from 1 to 100; `ENODEV` if pages may be written to
    /// a backing device, and the device has a size and none.
    pub fn set_budgets(&self, budgets: Budgets) -> Result<(), ControlError> {
        if !(1..=100).contains(&budgets.cpu_percent) {
            let message =
                format!("the share of a CPU is from 1 to 100 percent, not {}", budgets.cpu_percent);
            return Err(ControlError::invalid(message));
        }
        let mut settings = self.family().settings.lock();
        if budgets.written_a_day > 0 && self.bytes() != 0 && settings.backing.is_none() {
            let message = format!(
                "{} has no backing device that pages could go to; set backing_dev before its size",
                self.name()
            );
            return Err(ControlError::new(Errno::ENODEV, message));
        }
        settings.budgets = budgets;
        Ok(())
    }

    /// The budgets of the moves.
    #[must_use]
    pub fn budgets(&self) -> Budgets {
        self.family().settings.lock().budgets
    }

    /// What the tiers did until the last [`Disk::move_pages`] ended; nothing was done yet if they
    /// are off or the device has no size. It does not wait for one that is under way.
    #[must_use]
    pub fn tier_stats(&self) -> TierStats {
        self.family().tier_stats.lock().clone()
    }

    /// Moves pages between tiers, if that is on. `elapsed` are the nanoseconds since the call
    /// before; `spent` reads the CPU time of the calling thread in nanoseconds. It takes no more of
    /// it than [`Budgets::cpu_percent`] of the elapsed time, on average. Returns whether pages wait
    /// for CPU time.
    ///
    /// It does nothing while another thread goes through all pages. Readers and writers go on
    /// meanwhile. A reset waits for its end.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory to remember what pages did.
    pub fn move_pages(&self, elapsed: u64, spent: &dyn Fn() -> u64) -> Result<bool, ControlError> {
        if self.clone_of().is_some() {
            // Its pages move with those of its origin.
            return Ok(false);
        }
        if !self.auto() {
            // One that is under way may wait for the backing device: a later call does it.
            if let Some(mut walk) = self.family().tier_walk.try_lock() {
                *walk = None;
                *self.family().tier_stats.lock() = TierStats::default();
            }
            return Ok(false);
        }
        let Some(_post) = self.family().post.try_lock() else { return Ok(true) };
        let Some(engine) = self.engine() else { return Ok(false) };
        let mut tier_walk = self.family().tier_walk.lock();
        let place = self.place(&engine);
        let tier_walk = self.ready_walk(&place, &mut tier_walk)?;
        let spell = tier_walk.begin(self.budgets(), elapsed, spent);
        let waits = tier_walk.go_on(&place, spell);
        if tier_walk.is_between() {
            self.carry_out(&engine, tier_walk, spell);
        }
        if tier_walk.takes_compaction() {
            // It is one piece of work. A debt of CPU time is paid before the next pass.
            self.compact()?;
        }
        tier_walk.spend(spell.spent());
        *self.family().tier_stats.lock() = tier_walk.stats();
        Ok(waits)
    }

    /// Moves pages of about `most` groups down for a writer that needs their memory: with the same
    /// walk as the thread of the tiers. `post` keeps them apart. The calling thread holds it, may
    /// wait, and is no reader.
    pub(crate) fn press_tiers(
        &self,
        engine: &Engine,
        most: usize,
        has_room: &dyn Fn() -> bool,
    ) -> Moved {
        let mut tier_walk = self.family().tier_walk.lock();
        // Without memory for the walk, nothing moves.
        let place = self.place(engine);
        let walk = self.ready_walk(&place, &mut tier_walk);
        walk.map_or(Moved::Nothing, |walk| walk.press(&place, most, has_room))
    }

    /// The walk of the device as it is now, made if need be. The caller holds `post`.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory to remember what pages did.
    fn ready_walk<'a>(
        &self,
        place: &Place<'_>,
        walk: &'a mut Option<TierWalk>,
    ) -> Result<&'a mut TierWalk, ControlError> {
        let generation = self.family().generation();
        match walk.take().filter(|it| it.generation() == generation) {
            Some(known) => Ok(walk.insert(known)),
            None => {
                let made = TierWalk::new(place, generation, self.budgets());
                Ok(walk.insert(made.map_err(|error| ControlError::new(Errno::ENOMEM, error))?))
            }
        }
    }

    fn place<'a>(&'a self, engine: &'a Engine) -> Place<'a> {
        let uses = [Count::Reads, Count::Writes, Count::NotifyFree];
        Place {
            engine,
            readers: &self.readers,
            provider: &*self.resources.provider,
            pages: self.reach(),
            now: self.now(),
            uses: uses.into_iter().map(|it| self.counts.sum(it)).sum(),
        }
    }
}
