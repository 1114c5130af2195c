//! A machine made of any designs.

use std::sync::Arc;

use block::IoError;
use control::ControlError;
use pagealloc::{Frames, MemoryProvider, ZoneOptions};
use rampack::DiskOptions;
use sync::Mutex;
use units::{PAGE_SIZE, Page, pages_for};
use zcomp::{Chosen, Params};
use zram::{Disk as Device, HostFiles, NoHostFiles, Resources, Stats};
use zswap::{Parts, Zswap};

use crate::variants::{Variants, make_zone};

/// The options of a machine.
pub struct MachineOptions {
    /// CPUs, real or pretended: the number of instances of each per-CPU structure.
    pub cpus: usize,
    /// The most bytes that all devices may take together. The zone reserves addresses for them.
    pub memory: u64,
    /// The design of each seam.
    pub variants: Variants,
    /// Files of the host: backing devices for writeback, and dictionaries.
    pub files: Arc<dyn HostFiles>,
    /// The provider of memory for the cache in front of swap areas.
    pub swap_memory: Arc<dyn MemoryProvider>,
}

/// A zone and the disks that share it: a [`rampack::Machine`] of any designs.
pub struct Machine {
    resources: Arc<Resources>,
    variants: Variants,
    memory: u64,
    swap_memory: Arc<dyn MemoryProvider>,
    next: Mutex<u32>,
}

/// Entries of swapped pages for each page of memory.
const ENTRIES_PER_PAGE: u64 = 16;

fn zone(
    name: &str,
    provider: &dyn MemoryProvider,
    cpus: usize,
    memory: u64,
) -> Result<Arc<dyn Frames>, ControlError> {
    let max_frames = pages_for(memory).clamp(1, u64::from(u32::MAX / 2)) as u32;
    make_zone(
        name,
        provider,
        ZoneOptions { collapse: true, init_on_free: true, ..ZoneOptions::new(cpus, max_frames) },
    )
}

impl Machine {
    /// A machine without disks.
    ///
    /// # Errors
    /// `EINVAL` for an unknown design, `ENOMEM` when the zone gets no addresses.
    pub fn new(
        provider: Arc<dyn MemoryProvider>,
        options: MachineOptions,
    ) -> Result<Machine, ControlError> {
        let MachineOptions { cpus, memory, variants, files, swap_memory } = options;
        variants.check()?;
        let frames = zone(&variants.zone, &*provider, cpus, memory)?;
        let resources = Resources {
            counting_cpus: variants.counting_cpus(cpus),
            // As in the daemon: what is measured is what users get.
            track_access: true,
            slots: variants.slot_table()?,
            streams: variants.stream_policy()?,
            ..Resources::new(provider, frames, cpus, files)
        };
        let (resources, next) = (Arc::new(resources), Mutex::new(0));
        Ok(Machine { resources, variants, memory, swap_memory, next })
    }

    /// A machine with the CPUs and the memory of this one, of these designs.
    ///
    /// # Errors
    /// `EINVAL` for an unknown design, `ENOMEM` when the process gets no addresses.
    pub fn of(variants: Variants) -> Result<Machine, ControlError> {
        variants.check()?;
        let provider = variants.provider()?;
        let options = MachineOptions {
            cpus: host::cpus(),
            memory: host::total_memory(),
            variants,
            files: Arc::new(NoHostFiles),
            swap_memory: provider.clone(),
        };
        Machine::new(provider, options)
    }

    /// Adds a disk without a size.
    pub fn add(&self) -> Arc<Device> {
        let mut next = self.next.lock();
        let disk = Device::new(*next, self.resources.clone());
        *next += 1;
        disk
    }

    /// Adds a disk with a size.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0, an unknown algorithm or a level it refuses; `ENOMEM`.
    pub fn disk(&self, options: &DiskOptions) -> Result<Disk, ControlError> {
        let disk = self.add();
        disk.set_algorithm(&options.algorithm)?;
        disk.set_params(Params::at_level(options.level))?;
        disk.set_mem_limit(options.mem_limit);
        disk.set_when_full(options.when_full)?;
        disk.set_disksize(options.size)?;
        Ok(Disk { disk, frames: self.resources.frames.clone() })
    }

    /// Makes a cache in front of swap areas, with its own zone.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub fn swap(&self) -> Result<Arc<Zswap>, ControlError> {
        self.variants.swap(self.swap_memory.clone(), self.swap_parts()?)
    }

    /// The parts of a cache in front of swap areas.
    fn swap_parts(&self) -> Result<Parts, ControlError> {
        let (cpus, total_pages) = (self.resources.cpus, pages_for(self.memory));
        let memory = total_pages.saturating_mul(PAGE_SIZE as u64);
        Ok(Parts {
            frames: zone(&self.variants.zone, &*self.swap_memory, cpus, memory)?,
            kept: None,
            cpus,
            counting_cpus: self.resources.counting_cpus,
            codec: find_codec(zcomp::DEFAULT_ALGORITHM)?,
            find_codec: Box::new(find_codec),
            total_pages,
            entries: total_pages.saturating_mul(ENTRIES_PER_PAGE).min(1 << 30) as u32,
        })
    }

    /// Sets the clock that dates pages, in seconds.
    pub fn set_clock(&self, seconds: u32) {
        self.resources.clock.set(seconds);
    }

    /// The zone the disks take their frames from.
    #[must_use]
    pub fn frames(&self) -> &Arc<dyn Frames> {
        &self.resources.frames
    }
}

fn find_codec(name: &str) -> Result<Chosen, ControlError> {
    let params = Params::default();
    let compressor = zcomp::open(name, &params).map_err(|error| ControlError::invalid(error.0))?;
    Ok(Chosen { compressor, params })
}

/// A disk with a size, with the methods of [`rampack::Disk`].
#[derive(Clone)]
pub struct Disk {
    disk: Arc<Device>,
    frames: Arc<dyn Frames>,
}

impl Disk {
    /// [`rampack::Disk::store`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn store(&self, index: u64, page: &Page) -> Result<(), IoError> {
        self.disk.store_page(host::cpu(), index, page)
    }

    /// [`rampack::Disk::load`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn load(&self, index: u64, page: &mut Page) -> Result<(), IoError> {
        self.disk.load_page(host::cpu(), index, page)
    }

    /// [`rampack::Disk::discard`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), IoError> {
        self.disk.discard_pages(host::cpu(), first, count)
    }

    /// The statistics now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.disk.stats()
    }

    /// [`rampack::Disk::compact`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn compact(&self) -> Result<u64, ControlError> {
        let frames = self.disk.compact()?;
        self.frames.drain();
        Ok(frames * PAGE_SIZE as u64)
    }

    /// [`rampack::Rampack::maintain`].
    pub fn maintain(&self, most: u32) -> u32 {
        self.frames.maintain(most)
    }

    /// The device itself.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.disk
    }
}
