//! A disk of this process.

use std::sync::Arc;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Job, Operation, Visit};
use control::Errno;
use units::{Cpu, Page};

use crate::upkeep::Inner;
use crate::{DiskOptions, DiskStats, Error, PAGE_SIZE, WhenFull};

/// A compressed disk of this process, also a store of pages by number. Clones are the same disk;
/// it ends with the last. Any number of threads may call every method.
#[derive(Clone)]
pub struct Disk {
    disk: Arc<Removed>,
}

/// Removes the disk from its machine when it is dropped.
struct Removed {
    disk: Arc<zram::Disk>,
    inner: Arc<Inner>,
    /// What it is a clone of: that ends after it.
    origin: Option<Arc<Removed>>,
}

impl Drop for Removed {
    fn drop(&mut self) {
        // If the disk itself is still open, it stays with its machine.
        let _ = self.inner.machine.remove(self.disk.id());
    }
}

impl Disk {
    pub(crate) fn create(inner: &Arc<Inner>, options: DiskOptions) -> Result<Disk, Error> {
        let removed = Removed { disk: inner.machine.add()?, inner: inner.clone(), origin: None };
        let disk = &removed.disk;
        disk.set_algorithm(options.algorithm.name())?;
        disk.set_params(options.algorithm.params())?;
        disk.set_mem_limit(options.mem_limit);
        disk.set_when_full(match options.when_full {
            WhenFull::Fail => zram::WhenFull::Fail,
            WhenFull::Wait => zram::WhenFull::Wait,
        })?;
        if let Some(budgets) = options.auto {
            disk.set_track_access(true)?;
            disk.set_budgets(zram::Budgets {
                target: budgets.target,
                cpu_percent: budgets.cpu_percent,
                slowest_read: budgets.slowest_read,
                written_a_day: 0,
            })?;
            disk.set_auto(true)?;
        }
        disk.set_disksize(options.size)?;
        Ok(Disk { disk: Arc::new(removed) })
    }

    fn zram(&self) -> &zram::Disk {
        &self.disk.disk
    }

    /// Makes another disk with the contents that this one has at an instant within this call. Its
    /// users go on. The two share memory: a page takes memory of its own when one of them
    /// stores it. They also share their limit and what upkeep does. In [`Disk::stats`] shared
    /// memory counts with the first disk.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread does the same; [`Error::Full`] if there was no room to
    /// keep what other threads stored meanwhile; [`Error::NoMemory`].
    pub fn clone_contents(&self) -> Result<Disk, Error> {
        let inner = &self.disk.inner;
        let disk = match inner.machine.clone_disk(&self.disk.disk) {
            Err(error) if error.errno == Errno::ENOSPC => return Err(Error::Full),
            cloned => cloned?,
        };
        // A clone of a clone needs the first disk only.
        let origin = self.disk.origin.as_ref().unwrap_or(&self.disk).clone();
        let removed = Removed { disk, inner: inner.clone(), origin: Some(origin) };
        Ok(Disk { disk: Arc::new(removed) })
    }

    /// Its size in bytes, a multiple of [`PAGE_SIZE`].
    #[must_use]
    pub fn size(&self) -> u64 {
        self.zram().geometry().bytes
    }

    /// Stores page `index`. The first is 0.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the end, [`Error::Full`] at the limit (see
    /// [`DiskOptions::when_full`]), [`Error::NoMemory`]; the page is as it was.
    #[inline]
    pub fn store(&self, index: u64, page: &Page) -> Result<(), Error> {
        Ok(self.zram().store_page(host::cpu(), index, page)?)
    }

    /// Loads page `index`; zeroes if it was never stored.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the end; [`Error::Corrupt`] if what is stored does not
    /// decompress: what is in `page` is undefined then.
    #[inline]
    pub fn load(&self, index: u64, page: &mut Page) -> Result<(), Error> {
        Ok(self.zram().load_page(host::cpu(), index, page)?)
    }

    /// Frees `count` pages from `first` on; they read as zeroes afterwards.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] past the end; nothing has changed then.
    pub fn discard(&self, first: u64, count: u64) -> Result<(), Error> {
        Ok(self.zram().discard_pages(host::cpu(), first, count)?)
    }

    /// Reads the bytes from `offset` on.
    ///
    /// # Errors
    /// As for [`Disk::load`].
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.zram().submit(host::cpu(), Operation::Read { offset, into })?)
    }

    /// Writes bytes from `offset` on. A page that is written in part is read and stored as one.
    ///
    /// # Errors
    /// As for [`Disk::store`]; pages before the one that failed are written.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        Ok(self.zram().submit(host::cpu(), Operation::Write { offset, from })?)
    }

    /// Sets the limit of its memory in bytes; 0 for none. What is stored stays.
    pub fn set_mem_limit(&self, bytes: u64) {
        self.zram().set_mem_limit(bytes);
    }

    /// The statistics now.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        DiskStats::of(&self.zram().stats())
    }

    /// Moves objects together, and gives memory that gets free back to the system. It takes time in
    /// proportion to what is stored. Returns the freed bytes.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread compacts the disk.
    pub fn compact(&self) -> Result<u64, Error> {
        let frames = self.zram().compact()?;
        self.disk.inner.machine.frames().drain();
        Ok(frames * PAGE_SIZE as u64)
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.zram().geometry()
    }
    fn abilities(&self) -> Abilities {
        self.zram().abilities()
    }
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.zram().perform(context, operation)
    }
    fn submit_all(&self, cpu: Cpu, jobs: &mut [Job<'_>]) {
        self.zram().submit_all(cpu, jobs);
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.zram().extents(cpu, offset, length, visit)
    }
}
