//! The cache in front of swap areas, in memory that outlives the process.

use std::sync::Arc;
use std::time::Instant;

use block::BlockDevice;
use control::{ControlError, Errno};
use host::Memfds;
use pagealloc::{Frames, KeptMemory};
use units::PAGEBLOCK_SIZE;
use zram::{Census, Persist};
use zswap::{Recovered, Recovery, SavedSwap, SwapType, Zswap};

use crate::left::{InFiles, PATIENCE, forget, is_of_swap, no_memory, patiently, region, settle};
use crate::machine::{Machine, zone_over};
use crate::recovery::{Tell, recover};

/// The region of the frames of the cache.
const FRAMES: &str = "swap.frames";

/// Opens the device below an area.
type Below<'a> = &'a dyn Fn(SwapType) -> Result<Option<Arc<dyn BlockDevice>>, ControlError>;

impl Machine {
    /// The cache in front of swap areas, as [`Machine::swap`]; if it is made now, its state is in
    /// `memory`, which another process can have. Then it outlives the process, with all areas that
    /// are on. Memory is provided ahead if it is in the machine's options.
    ///
    /// # Errors
    /// `EBUSY` if `memory` has the cache of another process; `ENOMEM` when there is no memory or
    /// there are no addresses left.
    pub fn kept_swap(&self, memory: &Memfds) -> Result<Arc<Zswap>, ControlError> {
        let mut swap = self.swap.lock();
        match &*swap {
            Some(zswap) => Ok(zswap.clone()),
            None => self.make_kept_swap(&mut swap, memory),
        }
    }

    /// As [`Machine::kept_swap`], but makes the cache anew, with the default settings, unless an
    /// area is on: all its memory is a new mapping in `memory` then. It waits a moment for threads
    /// that still use the cache of before.
    ///
    /// # Errors
    /// As there; a cache of default settings in memory that ends with the process is there then.
    pub fn kept_swap_anew(&self, memory: &Memfds) -> Result<Arc<Zswap>, ControlError> {
        let mut swap = self.swap.lock();
        if let Some(zswap) = swap.as_ref().filter(|zswap| !zswap.areas().is_empty()) {
            return Ok(zswap.clone());
        }
        *swap = None;
        let made = patiently(Instant::now() + PATIENCE, || self.make_kept_swap(&mut swap, memory));
        made.or_else(|error| self.make_swap(&mut swap).and(Err(error)))
    }

    fn make_kept_swap(
        &self,
        swap: &mut Option<Arc<Zswap>>,
        memory: &Memfds,
    ) -> Result<Arc<Zswap>, ControlError> {
        if memory.regions().iter().any(|region| is_of_swap(&region.name)) {
            let message = "the memory has the swap cache of another process";
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        let kept = self.kept_memory(memory);
        let bytes = self.swap_bytes().next_multiple_of(PAGEBLOCK_SIZE as u64);
        let cpus = self.resources.cpus;
        let frames = zone_over(&*kept.provider(FRAMES), &*self.swap_memory, cpus, bytes)?;
        let parts = self.parts_of_swap(frames, Some(kept))?;
        let zswap = Arc::new(Zswap::new(self.swap_memory.clone(), parts)?);
        // What was refused is not in the memory: its regions would be.
        self.refused.lock().swap = None;
        *swap = Some(zswap.clone());
        Ok(zswap)
    }

    fn kept_memory(&self, memory: &Memfds) -> Arc<dyn KeptMemory> {
        Arc::new(InFiles { memory: memory.clone(), is_ahead: self.swap_memory.is_ahead() })
    }

    /// What another process needs to know of the cache in front of swap areas; `None` if there is
    /// none. It is of the one that was refused, also if there is one by now that ends with this
    /// process: only what was left is in memory that outlives it.
    #[must_use]
    pub fn saved_swap(&self) -> Option<SavedSwap> {
        let refused = self.refused.lock().swap.clone();
        refused.or_else(|| self.swap_if_made().map(|zswap| Recovery::save(&zswap)))
    }

    /// Makes the cache in front of swap areas as another process left it in `memory`, and tells
    /// what was recovered. `below` opens the device of an area, if it has one, when no other
    /// process has it open: then the writes of the dead process have ended. It is called again for
    /// a while if it answers `EBUSY`. Threads judge the pages, as many as there are CPUs, and call
    /// `progress`.
    ///
    /// An area whose device cannot be opened comes back without it:
    /// [`absent_device`](zswap::RecoveredArea::absent_device). Areas that are not in `saved` are
    /// off, and regions that no area asked for are given up, but for those of such an area.
    ///
    /// # Errors
    /// `EBUSY` if there is a cache already; `EINVAL` for a state that is damaged, of another
    /// layout, or not there; `ENOTSUP` if this program lacks a codec; `ENOMEM` when memory is out;
    /// the errors of settings. What was left is as it was, also in [`Machine::saved_swap`], and
    /// this process or another one can try again.
    pub fn recover_swap(
        &self,
        memory: &Memfds,
        saved: &SavedSwap,
        below: Below<'_>,
        progress: Tell<'_>,
    ) -> Result<(Arc<Zswap>, Recovered), ControlError> {
        let mut swap = self.swap.lock();
        if swap.is_some() {
            return Err(ControlError::new(Errno::EBUSY, "there is a swap cache already"));
        }
        let found = self.find_swap(memory, saved, below, progress);
        self.refused.lock().swap = found.is_err().then(|| saved.clone());
        let (zswap, recovered) = found?;
        *swap = Some(zswap.clone());
        Ok((zswap, recovered))
    }

    fn find_swap(
        &self,
        memory: &Memfds,
        saved: &SavedSwap,
        below: Below<'_>,
        progress: Tell<'_>,
    ) -> Result<(Arc<Zswap>, Recovered), ControlError> {
        let provider = self.swap_memory.clone();
        let (bytes, until) = (region(memory, FRAMES)?.bytes, Instant::now() + PATIENCE);
        let areas = saved.areas.iter().map(|swap| (*swap, patiently(until, || below(*swap))));
        let (areas, kept, cpus) = (areas.collect(), self.kept_memory(memory), self.resources.cpus);
        let zone = zone_over(&*kept.provider(FRAMES), &*provider, cpus, bytes)?;
        let census = Arc::new(Census::new(&*provider, zone.capacity()).map_err(no_memory)?);
        let parts = self.parts_of_swap(zone.clone(), Some(kept))?;
        let parts = zswap::Left { provider: provider.clone(), parts, areas };
        let surveyed = Recovery::survey(parts, saved, &census)?.into_iter().collect();
        let found = recover(surveyed, &zone, (&*provider, cpus), progress, |_| Ok(()))?.pop();
        let none = || ControlError::invalid("there is no swap cache");
        let (zswap, recovered) = found.ok_or_else(none)??;
        let absent = recovered.areas.iter().filter(|area| area.absent_device.is_some());
        let absent: Vec<_> = absent.map(|area| format!("swap{}.", area.swap.number())).collect();
        let is_absent = |name: &str| absent.iter().any(|beginning| name.starts_with(beginning));
        settle(memory, |name| is_of_swap(name) && !is_absent(name));
        Ok((Arc::new(zswap), recovered))
    }

    /// Gives up the cache in front of swap areas that another process left in `memory`, unless it
    /// was recovered.
    pub fn forget_swap(&self, memory: &Memfds) {
        self.refused.lock().swap = None;
        forget(memory, is_of_swap);
    }
}
