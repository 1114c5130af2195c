//! The cache in front of swap areas, in memory that outlives the process.

use std::sync::Arc;

use block::BlockDevice;
use control::{Bound, ControlError, Errno, Object};
use host::Memfds;
use pagealloc::{FrameSet, Frames, KeptMemory, MemoryProvider, NoMemory};
use units::{Cpu, PAGEBLOCK_SIZE};
use zswap::{PARAMETERS, Recovered, SwapType, Zswap};

use crate::kept::{Progress, forget, is_of_swap, patiently, walk};
use crate::machine::{Machine, zone_over};

/// The region of the frames of the cache.
const FRAMES: &str = "swap.frames";

/// What another process needs to know of the cache in front of swap areas, besides its memory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SavedSwap {
    /// The areas that are on, by number.
    pub areas: Vec<SwapType>,
    /// Its settings by the names of attributes, in any order.
    pub settings: Vec<(String, String)>,
}

/// Memory in files by name, which may be provided ahead.
struct InFiles {
    memory: Memfds,
    is_ahead: bool,
}

impl KeptMemory for InFiles {
    fn provider(&self, name: &str) -> Arc<dyn MemoryProvider> {
        let named = self.memory.provider(name);
        if self.is_ahead { Arc::new(named.ahead()) } else { Arc::new(named) }
    }
}

fn no_memory(error: NoMemory) -> ControlError {
    ControlError::new(Errno::ENOMEM, error.to_string())
}

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
        let made = patiently(|| self.make_kept_swap(&mut swap, memory));
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
        let frames = zone_over(&*kept.provider(FRAMES), &*self.swap_scenario, cpus, bytes)?;
        let parts = self.parts_of_swap(frames, Some(kept))?;
        let zswap = Arc::new(Zswap::new(self.swap_scenario.clone(), parts)?);
        *swap = Some(zswap.clone());
        Ok(zswap)
    }

    fn kept_memory(&self, memory: &Memfds) -> Arc<dyn KeptMemory> {
        Arc::new(InFiles { memory: memory.clone(), is_ahead: self.swap_scenario.is_ahead() })
    }

    /// What another process needs to know of the cache in front of swap areas; `None` if there is
    /// none.
    #[must_use]
    pub fn saved_swap(&self) -> Option<SavedSwap> {
        let zswap = self.swap_if_made()?;
        let shown = Bound::new(zswap.clone(), PARAMETERS);
        // The codec is in the memory of the cache.
        let names = PARAMETERS.iter().map(|row| row.name).filter(|name| *name != "compressor");
        let setting = |name: &str| Some((name.to_owned(), shown.show(name).ok()?.trim().into()));
        Some(SavedSwap { areas: zswap.areas(), settings: names.filter_map(setting).collect() })
    }

    /// Makes the cache in front of swap areas as another process left it in `memory`, and tells
    /// what was recovered. `below` opens the device of an area, if it has one, when no other
    /// process has it open: then the writes of the dead process have ended. It is called again for
    /// a while if it answers `EBUSY`. Threads judge the pages, as many as there are CPUs, and call
    /// `progress`.
    ///
    /// Areas that are not in `saved` are off, and regions that no area asked for are given up.
    ///
    /// # Errors
    /// `EBUSY` if there is a cache already; `EINVAL` for a state that is damaged, of another
    /// layout, or not there; `ENOTSUP` if this program lacks a codec; `ENOMEM` when memory is out;
    /// the errors of `below` and of settings. What was left is as it was, and another process can
    /// try again.
    pub fn recover_swap(
        &self,
        memory: &Memfds,
        saved: &SavedSwap,
        below: &dyn Fn(SwapType) -> Result<Option<Arc<dyn BlockDevice>>, ControlError>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(Arc<Zswap>, Recovered), ControlError> {
        let mut swap = self.swap.lock();
        if swap.is_some() {
            return Err(ControlError::new(Errno::EBUSY, "there is a swap cache already"));
        }
        let regions = memory.regions();
        let bytes = regions.iter().find(|region| region.name == FRAMES).map(|region| region.bytes);
        let none = || ControlError::invalid(format!("there is no region {FRAMES:?}"));
        let (bytes, cpus) = (bytes.ok_or_else(none)?, self.resources.cpus);
        let areas = saved.areas.iter().map(|swap| Ok((*swap, patiently(|| below(*swap))?)));
        let areas = areas.collect::<Result<Vec<_>, ControlError>>()?;
        let kept = self.kept_memory(memory);
        let zone = zone_over(&*kept.provider(FRAMES), &*self.swap_scenario, cpus, bytes)?;
        let (frames, capacity) = (zone.clone() as Arc<dyn Frames>, zone.capacity());
        let parts = self.parts_of_swap(frames, Some(kept))?;
        let recovery = Zswap::recover(self.swap_scenario.clone(), parts, areas)?;
        for (name, value) in &saved.settings {
            recovery.set(name, value).map_err(|error| {
                let what = format!("{name} of the swap cache: {}", error.message);
                ControlError::new(error.errno, what)
            })?;
        }
        for (n, (area, pages)) in recovery.areas().enumerate() {
            let pages = (area.number() as u32, pages as usize);
            walk(pages, cpus, progress, &|cpu: Cpu, range| {
                recovery.walk(cpu, n, range.start as u64..range.end as u64);
            });
        }
        let live = FrameSet::new(&*self.swap_scenario, capacity).map_err(no_memory)?;
        recovery.settle(&live);
        zone.adopt(&live).map_err(no_memory)?;
        let (zswap, recovered) = recovery.finish();
        let zswap = Arc::new(zswap);
        forget(memory, is_of_swap);
        *swap = Some(zswap.clone());
        Ok((zswap, recovered))
    }

    /// Gives up the cache in front of swap areas that another process left in `memory`, unless it
    /// was recovered.
    pub fn forget_swap(&self, memory: &Memfds) {
        forget(memory, is_of_swap);
    }
}
