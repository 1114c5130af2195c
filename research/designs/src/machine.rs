//! A machine made of any designs.

use std::sync::Arc;

use control::ControlError;
use pagealloc::{Frames, MemoryProvider, ZoneOptions};
use sync::Mutex;
use units::{PAGE_SIZE, pages_for};
use zcomp::{Chosen, Params};
use zram::{Disk, NoHostFiles, Resources};
use zswap::{Parts, Zswap};

use crate::variants::{Variants, make_zone};

/// A zone and the disks that share it: a `machine::Machine` of any designs.
pub struct Machine {
    resources: Arc<Resources>,
    variants: Variants,
    memory: u64,
    provider: Arc<dyn MemoryProvider>,
    next: Mutex<u32>,
}

/// Entries of swapped pages for each page of memory.
const ENTRIES_PER_PAGE: u64 = 16;

impl Machine {
    /// A machine without disks, with this many CPUs, real or pretended: instances of each per-CPU
    /// structure. All devices together may take `memory` bytes.
    ///
    /// # Errors
    /// `EINVAL` for an unknown design, `ENOMEM` when the zone gets no addresses.
    pub fn new(variants: Variants, cpus: usize, memory: u64) -> Result<Machine, ControlError> {
        let provider = variants.provider()?;
        let frames = zone(&variants.zone, &*provider, cpus, memory)?;
        let resources = Resources {
            // As in the daemon: what is measured is what users get.
            track_access: true,
            slots: variants.slot_table()?,
            streams: variants.stream_policy()?,
            ..Resources::new(provider.clone(), frames, cpus, Arc::new(NoHostFiles))
        };
        let (resources, next) = (Arc::new(resources), Mutex::new(0));
        Ok(Machine { resources, variants, memory, provider, next })
    }

    /// A machine with the CPUs and the memory of this one.
    ///
    /// # Errors
    /// Those of [`Machine::new`].
    pub fn of(variants: Variants) -> Result<Machine, ControlError> {
        Machine::new(variants, host::cpus(), host::total_memory())
    }

    /// Adds a disk without a size.
    pub fn add(&self) -> Arc<Disk> {
        let mut next = self.next.lock();
        let disk = Disk::new(*next, self.resources.clone());
        *next += 1;
        disk
    }

    /// Makes a cache in front of swap areas, with its own zone.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub fn swap(&self) -> Result<Arc<Zswap>, ControlError> {
        let (cpus, total_pages) = (self.resources.cpus, pages_for(self.memory));
        let memory = total_pages.saturating_mul(PAGE_SIZE as u64);
        let parts = Parts {
            frames: zone(&self.variants.zone, &*self.provider, cpus, memory)?,
            kept: None,
            cpus,
            counting_cpus: cpus,
            codec: find_codec(zcomp::DEFAULT_ALGORITHM)?,
            find_codec: Box::new(find_codec),
            total_pages,
            entries: total_pages.saturating_mul(ENTRIES_PER_PAGE).min(1 << 30) as u32,
        };
        self.variants.swap(self.provider.clone(), parts)
    }

    /// The zone the disks take their frames from.
    #[must_use]
    pub fn frames(&self) -> &Arc<dyn Frames> {
        &self.resources.frames
    }
}

fn zone(
    name: &str,
    provider: &dyn MemoryProvider,
    cpus: usize,
    memory: u64,
) -> Result<Arc<dyn Frames>, ControlError> {
    let max_frames = pages_for(memory).clamp(1, u64::from(u32::MAX / 2)) as u32;
    let options = ZoneOptions::new(cpus, max_frames);
    make_zone(name, provider, ZoneOptions { collapse: true, init_on_free: true, ..options })
}

fn find_codec(name: &str) -> Result<Chosen, ControlError> {
    let params = Params::default();
    let compressor = zcomp::open(name, &params).map_err(|error| ControlError::invalid(error.0))?;
    Ok(Chosen { compressor, params })
}
