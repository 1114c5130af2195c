//! A machine: a zone, and the devices that share it.

use std::collections::BTreeMap;
use std::sync::Arc;

use control::{ControlError, Errno};
use pagealloc::{Frames, MemoryProvider, Zone, ZoneOptions};
use sync::Mutex;
use units::{PAGE_SIZE, pages_for};
use zcomp::{Chosen, Params};
use zram::{Disk, HostFiles, Resources};
use zswap::{Parts, Zswap};

/// How a machine is made.
pub struct MachineOptions {
    /// CPUs, or pretended ones: how many of each per-CPU thing there are.
    pub cpus: usize,
    /// The most bytes all devices together may ever take; addresses are reserved for them.
    pub memory: u64,
    /// The system round it: files to write pages back to, and dictionaries.
    pub files: Arc<dyn HostFiles>,
    /// Where the cache in front of swap areas has its memory from. It has a zone of its own there:
    /// with a provider whose memory is provided ahead ([`MemoryProvider::is_ahead`]) stores wait
    /// for none.
    pub swap_scenario: Arc<dyn MemoryProvider>,
    /// Whether its devices keep the time of last use for each page, in four bytes, when nobody
    /// chooses otherwise. The times are those of [`Machine::set_clock`].
    pub track_access: bool,
}

/// For how many times the machine's memory there are entries of swapped pages: pages that are one
/// pattern, or shrink much, take next to none of it.
const ENTRIES_PER_PAGE: u64 = 16;

/// A zone for `memory` bytes.
fn zone(
    provider: &dyn MemoryProvider,
    cpus: usize,
    memory: u64,
) -> Result<Arc<dyn Frames>, ControlError> {
    let max_frames = pages_for(memory).clamp(1, u64::from(u32::MAX / 2)) as u32;
    let options = ZoneOptions { collapse: true, ..ZoneOptions::new(cpus, max_frames) };
    let zone = Zone::new(provider, options);
    Ok(Arc::new(zone.map_err(|error| ControlError::new(Errno::ENOMEM, error.to_string()))?))
}

/// A zone and the devices that share it. All methods may be called by any number of threads.
pub struct Machine {
    resources: Arc<Resources>,
    disks: Mutex<BTreeMap<u32, Arc<Disk>>>,
    memory: u64,
    swap_scenario: Arc<dyn MemoryProvider>,
    swap: Mutex<Option<Arc<Zswap>>>,
}

impl Machine {
    /// A machine without devices, whose disks have their memory from `provider`.
    ///
    /// # Errors
    /// `ENOMEM` when there are no addresses for the zone.
    pub fn new(
        provider: Arc<dyn MemoryProvider>,
        options: MachineOptions,
    ) -> Result<Machine, ControlError> {
        let MachineOptions { cpus, files, track_access, memory, swap_scenario } = options;
        let frames = zone(&*provider, cpus, memory)?;
        let resources = Resources { track_access, ..Resources::new(provider, frames, cpus, files) };
        Ok(Machine {
            resources: Arc::new(resources),
            disks: Mutex::new(BTreeMap::new()),
            memory,
            swap_scenario,
            swap: Mutex::new(None),
        })
    }

    /// Adds a device without a size, with the lowest number that is free.
    ///
    /// # Errors
    /// `ENOSPC` when every number is taken.
    pub fn add(&self) -> Result<Arc<Disk>, ControlError> {
        let mut disks = self.disks.lock();
        let id = (0..=u32::MAX)
            .find(|id| !disks.contains_key(id))
            .ok_or_else(|| ControlError::new(Errno::ENOSPC, "every device number is taken"))?;
        let disk = Disk::new(id, self.resources.clone());
        disks.insert(id, disk.clone());
        Ok(disk)
    }

    /// It is `seconds` now, by the clock that pages are dated by; counted from when the machine
    /// started, as Linux does.
    pub fn set_clock(&self, seconds: u32) {
        self.resources.clock.set(seconds);
    }

    /// Resets a device and removes it.
    ///
    /// # Errors
    /// `ENODEV` if there is none, `EBUSY` while it has users; nothing has changed then. `EBUSY`
    /// also if somebody takes it into use at that moment; it has been reset then.
    pub fn remove(&self, id: u32) -> Result<(), ControlError> {
        let none = || ControlError::new(Errno::ENODEV, format!("there is no device zram{id}"));
        // Not under the lock: a writeback may be under way, which is waited for.
        self.disk(id).ok_or_else(none)?.reset()?;
        let mut disks = self.disks.lock();
        let disk = disks.get(&id).ok_or_else(none)?;
        if disk.bytes() != 0 || disk.openers() != 0 {
            let message = format!("zram{id} was taken into use again while it was being removed");
            return Err(ControlError::new(Errno::EBUSY, message));
        }
        disks.remove(&id);
        Ok(())
    }

    /// Device `id`, if there is one.
    #[must_use]
    pub fn disk(&self, id: u32) -> Option<Arc<Disk>> {
        self.disks.lock().get(&id).cloned()
    }

    /// Every device, by number.
    #[must_use]
    pub fn disks(&self) -> Vec<Arc<Disk>> {
        self.disks.lock().values().cloned().collect()
    }

    /// The cache in front of swap areas, made now if there was none. It begins with the default
    /// codec and `max_pool_percent` of the machine's memory.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub fn swap(&self) -> Result<Arc<Zswap>, ControlError> {
        let mut swap = self.swap.lock();
        if let Some(zswap) = &*swap {
            return Ok(zswap.clone());
        }
        self.make_swap(&mut swap)
    }

    /// The cache in front of swap areas, made anew unless an area is on: whatever it consists of is
    /// mapped from now on. Settings are those it begins with.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out; the old one is still there then.
    pub fn swap_anew(&self) -> Result<Arc<Zswap>, ControlError> {
        let mut swap = self.swap.lock();
        match &*swap {
            Some(zswap) if !zswap.areas().is_empty() => Ok(zswap.clone()),
            _ => self.make_swap(&mut swap),
        }
    }

    fn make_swap(&self, swap: &mut Option<Arc<Zswap>>) -> Result<Arc<Zswap>, ControlError> {
        let (cpus, total_pages) = (self.resources.cpus, pages_for(self.memory));
        let memory = total_pages.saturating_mul(PAGE_SIZE as u64);
        let parts = Parts {
            frames: zone(&*self.swap_scenario, cpus, memory)?,
            cpus,
            counting_cpus: cpus,
            codec: find_codec(zcomp::DEFAULT_ALGORITHM)?,
            find_codec: Box::new(find_codec),
            total_pages,
            entries: total_pages.saturating_mul(ENTRIES_PER_PAGE).min(1 << 30) as u32,
        };
        let zswap = Arc::new(Zswap::new(self.swap_scenario.clone(), parts)?);
        *swap = Some(zswap.clone());
        Ok(zswap)
    }

    /// The cache in front of swap areas, if it was ever asked for.
    #[must_use]
    pub fn swap_if_made(&self) -> Option<Arc<Zswap>> {
        self.swap.lock().clone()
    }

    /// The zone the devices take their frames from.
    #[must_use]
    pub fn frames(&self) -> &Arc<dyn Frames> {
        &self.resources.frames
    }
}

/// A codec of the cache, by its name. As Linux answers, a name it does not know is `ENOENT`.
fn find_codec(name: &str) -> Result<Chosen, ControlError> {
    let params = Params::default();
    match zcomp::open(name, &params) {
        Ok(compressor) => Ok(Chosen { compressor, params }),
        Err(error) => Err(ControlError::new(Errno::ENOENT, error.to_string())),
    }
}
