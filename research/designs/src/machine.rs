//! A machine of any designs.

use std::sync::Arc;

use block::IoError;
use control::ControlError;
use pagealloc::{Frames, MemoryProvider, ZoneOptions};
use rampack::DiskOptions;
use sync::Mutex;
use units::{PAGE_SIZE, Page, pages_for};
use zcomp::{Chosen, Params};
use zram::{HostFiles, NoHostFiles, Resources, Stats};
use zswap::Parts;

use crate::variants::{Variants, make_disk, make_swap, make_zone};
use crate::{AnyDisk, AnySwap};

/// How a machine is made.
pub struct MachineOptions {
    /// CPUs, or pretended ones: how many of each per-CPU thing there are.
    pub cpus: usize,
    /// The most bytes all devices together may ever take; addresses are reserved for them.
    pub memory: u64,
    /// Which design of each seam.
    pub variants: Variants,
    /// The system round it: files to write pages back to, and dictionaries.
    pub files: Arc<dyn HostFiles>,
    /// Where the cache in front of swap areas has its memory from.
    pub swap_scenario: Arc<dyn MemoryProvider>,
}

/// A zone and the disks that share it, as [`rampack::Machine`], but of any designs.
pub struct Machine {
    resources: Arc<Resources>,
    variants: Variants,
    memory: u64,
    swap_scenario: Arc<dyn MemoryProvider>,
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
    make_zone(name, provider, ZoneOptions { collapse: true, ..ZoneOptions::new(cpus, max_frames) })
}

impl Machine {
    /// A machine without disks.
    ///
    /// # Errors
    /// `EINVAL` for an unknown design, `ENOMEM` when there are no addresses for the zone.
    pub fn new(
        provider: Arc<dyn MemoryProvider>,
        options: MachineOptions,
    ) -> Result<Machine, ControlError> {
        let MachineOptions { cpus, memory, variants, files, swap_scenario } = options;
        variants.check()?;
        let frames = zone(&variants.zone, &*provider, cpus, memory)?;
        let resources = Resources {
            counting_cpus: variants.counting_cpus(cpus),
            ..Resources::new(provider, frames, cpus, files)
        };
        let (resources, next) = (Arc::new(resources), Mutex::new(0));
        Ok(Machine { resources, variants, memory, swap_scenario, next })
    }

    /// A machine with the CPUs and the memory of this one, of these designs.
    ///
    /// # Errors
    /// `EINVAL` for an unknown design, `ENOMEM` when the process may not have the addresses.
    pub fn of(variants: Variants) -> Result<Machine, ControlError> {
        let options = MachineOptions {
            cpus: host::cpus(),
            memory: host::total_memory(),
            variants,
            files: Arc::new(NoHostFiles),
            swap_scenario: Arc::new(host::Mmap),
        };
        Machine::new(Arc::new(host::Mmap), options)
    }

    /// Another disk, without a size.
    ///
    /// # Errors
    /// None, as the designs were looked up when the machine was made.
    pub fn add(&self) -> Result<Arc<dyn AnyDisk>, ControlError> {
        let mut next = self.next.lock();
        let disk = make_disk(&self.variants, *next, self.resources.clone())?;
        *next += 1;
        Ok(disk)
    }

    /// Another disk, with a size.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0, an unknown algorithm or a level it refuses; `ENOMEM`.
    pub fn disk(&self, options: &DiskOptions) -> Result<Disk, ControlError> {
        let disk = self.add()?;
        disk.set_algorithm(&options.algorithm)?;
        disk.set_params(Params::at_level(options.level))?;
        disk.set_mem_limit(options.mem_limit);
        disk.set_disksize(options.size)?;
        Ok(Disk { disk, frames: self.resources.frames.clone() })
    }

    /// A cache in front of swap areas, with a zone of its own.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub fn swap(&self) -> Result<Arc<dyn AnySwap>, ControlError> {
        make_swap(&self.variants.index, self.swap_scenario.clone(), self.swap_parts()?)
    }

    /// What such a cache is made of.
    fn swap_parts(&self) -> Result<Parts, ControlError> {
        let (cpus, total_pages) = (self.resources.cpus, pages_for(self.memory));
        let memory = total_pages.saturating_mul(PAGE_SIZE as u64);
        Ok(Parts {
            frames: zone(&self.variants.zone, &*self.swap_scenario, cpus, memory)?,
            cpus,
            counting_cpus: self.resources.counting_cpus,
            codec: find_codec(zcomp::DEFAULT_ALGORITHM)?,
            find_codec: Box::new(find_codec),
            total_pages,
            entries: total_pages.saturating_mul(ENTRIES_PER_PAGE).min(1 << 30) as u32,
        })
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

/// A disk with a size, used as [`rampack::Disk`] is.
#[derive(Clone)]
pub struct Disk {
    disk: Arc<dyn AnyDisk>,
    frames: Arc<dyn Frames>,
}

impl Disk {
    /// [`rampack::Disk::store`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn store(&self, index: u64, page: &Page) -> Result<(), IoError> {
        self.disk.store_page(host::cpu(), index, page)
    }

    /// [`rampack::Disk::load`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn load(&self, index: u64, page: &mut Page) -> Result<(), IoError> {
        self.disk.load_page(host::cpu(), index, page)
    }

    /// [`rampack::Disk::discard`].
    ///
    /// # Errors
    /// As there.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), IoError> {
        self.disk.discard_pages(host::cpu(), first, count)
    }

    /// Statistics, of the moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.disk.stats()
    }

    /// [`rampack::Disk::compact`].
    ///
    /// # Errors
    /// As there.
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
    pub fn device(&self) -> &Arc<dyn AnyDisk> {
        &self.disk
    }
}
