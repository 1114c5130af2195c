//! A machine: a zone and the devices that share it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use control::{ControlError, Errno};
use pagealloc::{Frames, KeptMemory, MemoryProvider, NoMemory, Zone, ZoneOptions};
use sync::Mutex;
use units::{PAGE_SIZE, pages_for};
use zcomp::{Chosen, Params};
use zram::{Disk, HostFiles, Resources};
use zswap::{Parts, Zswap};

use crate::host_files::HostSystem;
use crate::refused::Refused;

/// The options of a machine.
pub struct MachineOptions {
    /// The number of CPUs, real or simulated: each per-CPU structure exists this many times.
    pub cpus: usize,
    /// The most bytes that all devices together may take; addresses are reserved for them.
    pub memory: u64,
    /// The files of the system: backing stores for writeback, and dictionaries.
    pub files: Arc<dyn HostFiles>,
    /// The memory provider of the cache in front of swap areas, which has its own zone there. With
    /// a provider that provides memory ahead ([`MemoryProvider::is_ahead`]) a store never waits for
    /// memory.
    pub swap_memory: Arc<dyn MemoryProvider>,
    /// The default of its devices: whether they keep the time of last use of each page, in four
    /// bytes. The times are those of [`Machine::set_clock`].
    pub track_access: bool,
}

impl MachineOptions {
    /// Of this system: its cpus, files and memory.
    #[must_use]
    pub fn of_this_system() -> MachineOptions {
        let memory = match host::total_memory() {
            0 => 1 << 40,
            memory => memory,
        };
        MachineOptions {
            cpus: host::cpus(),
            memory,
            files: Arc::new(HostSystem),
            swap_memory: Arc::new(host::Mmap),
            track_access: false,
        }
    }
}

/// The entries of swapped pages cover this many times the machine's memory: a same-filled page, or
/// one that compresses well, takes almost no memory.
const ENTRIES_PER_PAGE: u64 = 16;

/// Makes a zone for `memory` bytes.
fn zone(
    provider: &dyn MemoryProvider,
    cpus: usize,
    memory: u64,
) -> Result<Arc<dyn Frames>, ControlError> {
    Ok(zone_over(provider, provider, cpus, memory)?)
}

/// Makes a zone for `memory` bytes of `frames`, with tables of `tables`.
pub(crate) fn zone_over(
    frames: &dyn MemoryProvider,
    tables: &dyn MemoryProvider,
    cpus: usize,
    memory: u64,
) -> Result<Arc<Zone>, ControlError> {
    let max_frames = pages_for(memory).clamp(1, u64::from(u32::MAX / 2)) as u32;
    let options =
        ZoneOptions { collapse: true, init_on_free: true, ..ZoneOptions::new(cpus, max_frames) };
    let zone = Zone::over(frames, tables, options);
    // A provider reserves addresses here; memory is used later.
    let none = |NoMemory { bytes }| {
        let message = format!(
            "no addresses for {bytes} bytes, as much as the machine has memory; the limit on \
             addresses is too low: see `ulimit -v`"
        );
        ControlError::new(Errno::ENOMEM, message)
    };
    Ok(Arc::new(zone.map_err(none)?))
}

/// A zone and the devices that share it. Any number of threads may call every method.
pub struct Machine {
    pub(crate) resources: Arc<Resources>,
    disks: Mutex<BTreeMap<u32, Arc<Disk>>>,
    memory: u64,
    pub(crate) swap_memory: Arc<dyn MemoryProvider>,
    pub(crate) swap: Mutex<Option<Arc<Zswap>>>,
    /// Taken after `disks`, and after `swap`.
    pub(crate) refused: Mutex<Refused>,
}

impl Machine {
    /// Makes a machine without devices; its disks take their memory from `provider`.
    ///
    /// # Errors
    /// `ENOMEM` when there are no addresses for the zone.
    pub fn new(
        provider: Arc<dyn MemoryProvider>,
        options: MachineOptions,
    ) -> Result<Machine, ControlError> {
        let frames = zone(&*provider, options.cpus, options.memory)?;
        Ok(Machine::of(provider, options, frames, None))
    }

    /// A machine without devices whose disks take their frames from `frames`, and the memory of
    /// what outlives the process from `kept`.
    pub(crate) fn of(
        provider: Arc<dyn MemoryProvider>,
        options: MachineOptions,
        frames: Arc<dyn Frames>,
        kept: Option<Arc<dyn KeptMemory>>,
    ) -> Machine {
        let MachineOptions { cpus, files, track_access, memory, swap_memory } = options;
        let resources =
            Resources { track_access, kept, ..Resources::new(provider, frames, cpus, files) };
        Machine {
            resources: Arc::new(resources),
            disks: Mutex::new(BTreeMap::new()),
            memory,
            swap_memory,
            swap: Mutex::new(None),
            refused: Mutex::new(Refused::default()),
        }
    }

    /// Adds a device without a size, with the lowest number that is free.
    ///
    /// # Errors
    /// `ENOSPC` when every number is taken.
    pub fn add(&self) -> Result<Arc<Disk>, ControlError> {
        self.add_made(|id| Disk::new(id, self.resources.clone()))
    }

    /// Adds a clone of a device, with the lowest number that is free: see [`Disk::clone_contents`].
    ///
    /// # Errors
    /// Those of [`Disk::clone_contents`], `ENOSPC` when every number is taken.
    pub fn clone_disk(&self, disk: &Arc<Disk>) -> Result<Arc<Disk>, ControlError> {
        let cloned = disk.clone_contents()?;
        self.add_made(|id| cloned.into_disk(id))
    }

    fn add_made(&self, make: impl FnOnce(u32) -> Arc<Disk>) -> Result<Arc<Disk>, ControlError> {
        let (mut disks, refused) = (self.disks.lock(), self.refused.lock());
        let id = (0..=u32::MAX)
            .find(|id| !disks.contains_key(id) && !refused.disks.contains_key(id))
            .ok_or_else(|| ControlError::new(Errno::ENOSPC, "every device number is taken"))?;
        let disk = make(id);
        disks.insert(id, disk.clone());
        Ok(disk)
    }

    /// Adds device `id` without a size.
    ///
    /// # Errors
    /// `EEXIST` if there is one of this number.
    pub fn add_at(&self, id: u32) -> Result<Arc<Disk>, ControlError> {
        let (mut disks, refused) = (self.disks.lock(), self.refused.lock());
        if disks.contains_key(&id) || refused.disks.contains_key(&id) {
            return Err(ControlError::new(Errno::EEXIST, format!("there is a zram{id} already")));
        }
        let disk = Disk::new(id, self.resources.clone());
        disks.insert(id, disk.clone());
        Ok(disk)
    }

    /// Puts in a device that was recovered.
    pub(crate) fn put(&self, disk: Arc<Disk>) {
        self.disks.lock().insert(disk.id(), disk);
    }

    /// Takes out a device that nobody has seen yet.
    pub(crate) fn take_out(&self, id: u32) {
        self.disks.lock().remove(&id);
    }

    /// Sets the clock for the access times of pages: `seconds` since the machine started, as in
    /// Linux.
    pub fn set_clock(&self, seconds: u32) {
        self.resources.clock.set(seconds);
    }

    /// Lets pages of all devices and of the cache of swap areas move by themselves, where that is
    /// on: see [`Disk::move_pages`] and [`Zswap::recompress_old`].
    ///
    /// # Errors
    /// The first error of a device. The others have had their turn.
    pub fn move_pages(&self, elapsed: Duration) -> Result<bool, ControlError> {
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let (mut waits, mut outcome) = (false, Ok(()));
        for disk in self.disks() {
            match disk.move_pages(elapsed, &host::thread_cpu_time) {
                Ok(more) => waits |= more,
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        if let Some(zswap) = self.swap_if_made() {
            waits |= zswap.recompress_old(host::cpu(), elapsed, &host::thread_cpu_time);
        }
        outcome.map(|()| waits)
    }

    /// Resets a device and removes it. Gives up what is left of one that was refused.
    ///
    /// # Errors
    /// `ENODEV` if there is no such device, `EBUSY` while it has users; nothing has changed then.
    /// `EBUSY` also if another thread opens it during the call; the device is reset then. What is
    /// left of one with clones is not given up before them.
    pub fn remove(&self, id: u32) -> Result<(), ControlError> {
        let none = || ControlError::new(Errno::ENODEV, format!("there is no device zram{id}"));
        if self.refused.lock().give_up(id, &*self.resources.frames)? {
            return Ok(());
        }
        // The reset is not under the lock, because it may wait for a writeback.
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

    /// The cache in front of swap areas; the first call makes it. It begins with the default codec
    /// and `max_pool_percent` of the machine's memory.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory or there are no addresses left.
    pub fn swap(&self) -> Result<Arc<Zswap>, ControlError> {
        let mut swap = self.swap.lock();
        if let Some(zswap) = &*swap {
            return Ok(zswap.clone());
        }
        self.make_swap(&mut swap)
    }

    /// The cache in front of swap areas if it was made, else an empty one with the same settings,
    /// which is made for one look: it takes no addresses, and its settings go nowhere.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory.
    pub fn swap_to_look_at(&self) -> Result<Arc<Zswap>, ControlError> {
        if let Some(zswap) = self.swap_if_made() {
            return Ok(zswap);
        }
        let parts = self.parts_of_swap(self.resources.frames.clone(), None)?;
        Ok(Arc::new(Zswap::new(Arc::new(host::Mmap), Parts { entries: 1, ..parts })?))
    }

    /// Makes the cache in front of swap areas anew, so that all its memory is a new mapping. The
    /// new cache has the default settings. If an area is on, it returns the existing cache.
    ///
    /// # Errors
    /// `ENOMEM` when there is no memory or there are no addresses left; the old cache stays then.
    pub fn swap_anew(&self) -> Result<Arc<Zswap>, ControlError> {
        let mut swap = self.swap.lock();
        match &*swap {
            Some(zswap) if !zswap.areas().is_empty() => Ok(zswap.clone()),
            _ => self.make_swap(&mut swap),
        }
    }

    pub(crate) fn make_swap(
        &self,
        swap: &mut Option<Arc<Zswap>>,
    ) -> Result<Arc<Zswap>, ControlError> {
        let frames = zone(&*self.swap_memory, self.resources.cpus, self.swap_bytes())?;
        let parts = self.parts_of_swap(frames, None)?;
        let zswap = Arc::new(Zswap::new(self.swap_memory.clone(), parts)?);
        *swap = Some(zswap.clone());
        Ok(zswap)
    }

    /// The most bytes that the cache in front of swap areas may have.
    pub(crate) fn swap_bytes(&self) -> u64 {
        pages_for(self.memory).saturating_mul(PAGE_SIZE as u64)
    }

    pub(crate) fn parts_of_swap(
        &self,
        frames: Arc<dyn Frames>,
        kept: Option<Arc<dyn KeptMemory>>,
    ) -> Result<Parts, ControlError> {
        let (cpus, total_pages) = (self.resources.cpus, pages_for(self.memory));
        Ok(Parts {
            frames,
            kept,
            cpus,
            counting_cpus: cpus,
            codec: find_codec(zcomp::DEFAULT_ALGORITHM)?,
            find_codec: Box::new(find_codec),
            total_pages,
            entries: total_pages.saturating_mul(ENTRIES_PER_PAGE).min(1 << 30) as u32,
        })
    }

    /// The cache in front of swap areas, if it was made.
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

/// Finds a codec of the cache by its name. `ENOENT` for an unknown name, as in Linux.
fn find_codec(name: &str) -> Result<Chosen, ControlError> {
    let params = Params::default();
    match zcomp::open(name, &params) {
        Ok(compressor) => Ok(Chosen { compressor, params }),
        Err(error) => Err(ControlError::new(Errno::ENOENT, error.to_string())),
    }
}
