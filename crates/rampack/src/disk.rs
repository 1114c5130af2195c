//! The devices of this process.

use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};
use control::ControlError;
use units::{Cpu, Page};
use zram::{Budgets, Stats, WhenFull};

use crate::Machine;

/// The options of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskOptions {
    /// Its size in bytes, rounded up to pages. It costs memory only as pages are stored.
    pub size: u64,
    /// The codec: one of [`crate::ALGORITHMS`].
    pub algorithm: String,
    /// The codec's level, or its default.
    pub level: Option<i32>,
    /// The memory limit for stored pages, in bytes; 0 for no limit.
    pub mem_limit: u64,
    /// What a store does at that limit. With [`WhenFull::Wait`] the calling thread moves pages of
    /// [`DiskOptions::auto`] to smaller forms, whatever their age, and the store fails when none
    /// gets smaller. A device made by these options has no backing device, so
    /// [`WhenFull::Spill`] is refused.
    pub when_full: WhenFull,
    /// Pages that are not used move to smaller forms within these budgets, whenever the program
    /// calls [`Rampack::move_pages`](crate::Rampack::move_pages); `None` if no page moves by
    /// itself. It takes 16 bytes a page.
    pub auto: Option<Budgets>,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        let algorithm = crate::DEFAULT_ALGORITHM.into();
        DiskOptions {
            size: 0,
            algorithm,
            level: None,
            mem_limit: 0,
            when_full: WhenFull::Fail,
            auto: None,
        }
    }
}

/// A compressed RAM disk of this process, also a store of pages. Dropping the last clone removes
/// it. Any number of threads may call every method.
#[derive(Clone)]
pub struct Disk {
    disk: Arc<Removed>,
}

/// Removes the device from its machine when it is dropped.
struct Removed {
    disk: Arc<zram::Disk>,
    machine: Arc<Machine>,
}

impl Drop for Removed {
    fn drop(&mut self) {
        // If the device itself is still open, it stays with its machine.
        let _ = self.machine.remove(self.disk.id());
    }
}

impl Disk {
    pub(crate) fn create(
        machine: &Arc<Machine>,
        options: DiskOptions,
    ) -> Result<Disk, ControlError> {
        let disk = Removed { disk: machine.add()?, machine: machine.clone() };
        disk.disk.set_algorithm(&options.algorithm)?;
        disk.disk.set_params(zcomp::Params::at_level(options.level))?;
        disk.disk.set_mem_limit(options.mem_limit);
        disk.disk.set_when_full(options.when_full)?;
        if let Some(budgets) = options.auto {
            disk.disk.set_track_access(true)?;
            disk.disk.set_budgets(budgets)?;
            disk.disk.set_auto(true)?;
        }
        disk.disk.set_disksize(options.size)?;
        Ok(Disk { disk: Arc::new(disk) })
    }

    /// Stores page `index`. Pages are 4096 bytes; the first is 0.
    ///
    /// # Errors
    /// `OutOfRange` past the end, `NoSpace` at the memory limit (see [`DiskOptions::when_full`]),
    /// `NoMemory`; the page has not changed then.
    pub fn store(&self, index: u64, page: &Page) -> Result<(), IoError> {
        self.disk.disk.store_page(host::cpu(), index, page)
    }

    /// Loads page `index`; zeroes if it was never stored.
    ///
    /// # Errors
    /// `OutOfRange` past the end, `Corrupt` if the stored object does not decompress, `Failed` if
    /// the page was written back and cannot be read.
    pub fn load(&self, index: u64, page: &mut Page) -> Result<(), IoError> {
        self.disk.disk.load_page(host::cpu(), index, page)
    }

    /// Frees `count` pages from `first` on; they read as zeroes afterwards.
    ///
    /// # Errors
    /// `OutOfRange` past the end; nothing has changed then.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), IoError> {
        self.disk.disk.discard_pages(host::cpu(), first, count)
    }

    /// The statistics now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.disk.disk.stats()
    }

    /// Compacts the zspages and gives the freed frames back to the operating system. Returns the
    /// freed bytes.
    ///
    /// # Errors
    /// A device of this library returns no error.
    pub fn compact(&self) -> Result<u64, ControlError> {
        let frames = self.disk.disk.compact()?;
        self.disk.machine.frames().drain();
        Ok(frames * units::PAGE_SIZE as u64)
    }

    /// The device itself, with its attributes.
    #[must_use]
    pub fn device(&self) -> &Arc<zram::Disk> {
        &self.disk.disk
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.disk.disk.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.disk.disk.abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.disk.disk.perform(context, operation)
    }
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        self.disk.disk.submit_all(cpu, jobs);
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.disk.extents(cpu, offset, length, visit)
    }
}
