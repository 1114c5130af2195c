//! Clones: devices with the contents that another one had at one instant.
//!
//! A clone has a window of its own on the slots of the engine of its *origin*. To clone is to let
//! the slots of the window name the objects of the origin, which become shared ones: see
//! `engine::shared`. Objects are write-once, so a store to one device leaves the others as they
//! are. Pages on the backing device get objects of their own, because only one slot names a place
//! there.
//!
//! Where the origin outlives its process, so do its clones: their slots are a part of its table,
//! and `engine::kept_windows` says which.
//!
//! The instant is that of a cut, as for a snapshot: writers go on, and what they replace is handed
//! over. What is done to objects (codecs, limits, compaction, writeback, tiers) is done for the
//! origin and all its clones at once, under the locks of the origin.

use alloc::sync::Arc;
use alloc::{boxed::Box, format, vec::Vec};
use core::ops::Range;

use block::IoError;
use control::{ControlError, Errno};
use pagelog::{AT_ONCE, Wanted};
use sync::atomic::Ordering;
use units::PAGE_SIZE;

use crate::counts::Counts;
use crate::disk::{Disk, Place};
use crate::engine::{Engine, Fetched, LeftWindow, Table, ToFetch};
use crate::resources::{CPU, Resources};

/// The most pages that are looked at by one reader of the device, for whom others may wait.
const AT_A_TIME: usize = 64;

/// The contents of a clone that is no device yet. When it is dropped, they are given up.
pub struct Cloned {
    origin: Arc<Disk>,
    place: Place,
    bytes: u64,
    counts: Arc<Counts>,
}

impl Disk {
    /// Makes a clone: what the device has at an instant within this call. Users of the device go on
    /// meanwhile, but post-processing waits for the end, and so does a write for which room must be
    /// made. It takes 1 byte for each page, half a byte more if times of last use are kept, and 16
    /// for each object that becomes a shared one; later 16 for eight neighbours of which one is
    /// written, and 80 if more are. Of a device that outlives the process it takes 8 bytes for each
    /// page, and 4 more for times: another process finds the clone as any device. Pages on the
    /// backing device, and those filled with eight bytes whose halves differ, take memory as when
    /// they are stored.
    ///
    /// The clone of a clone has the same origin. The calling thread is no reader.
    ///
    /// # Errors
    /// `EINVAL` for a device without a size, `EBUSY` while a snapshot or another clone of its
    /// family is made, `ENOMEM`, `ENOSPC` if there is no room for what was overwritten meanwhile,
    /// or at `mem_limit` for pages on the backing device, `EIO` if such a page cannot be read.
    /// There is no clone then, and the device has its contents.
    pub fn clone_contents(self: &Arc<Disk>) -> Result<Cloned, ControlError> {
        // A device that is being restored has none, and the lock.
        self.ready_engine()?;
        let origin = self.clone_of().unwrap_or(self).clone();
        let _post = origin.post.lock();
        let engine = self.ready_engine()?;
        if self.resources.kept.is_some() {
            let name = Resources::kept_name(origin.id(), origin.generation());
            let memory = self.resources.memory_of(&name, Table::Clones);
            let kept = engine.windows().keep(&*memory);
            kept.map_err(|error| ControlError::new(Errno::ENOMEM, format!("{error}")))?;
        }
        let (from, bytes) = (self.window(), self.bytes());
        let counts = Arc::new(Counts::new(self.resources.counting_cpus));
        // Until the clone is removed, the origin may double its size.
        let behind = origin.pages().saturating_mul(2);
        let memory = &*self.resources.provider;
        let window = engine.take_window(memory, behind, from.len(), counts.clone());
        let window = window.ok_or_else(|| {
            let message = format!("there are no addresses for a clone of {bytes} bytes");
            ControlError::new(Errno::ENOMEM, message)
        })?;
        let base = window.start;
        let filled = engine.begin_cut(memory, from.clone()).and_then(|()| {
            let filled = self.fill_window(&engine, from, base);
            engine.end_cut(CPU);
            filled
        });
        let place = Place { engine: engine.clone(), base };
        if let Err(error) = filled {
            drop(place);
            engine.own_again(CPU, origin.reach());
            return Err(error);
        }
        Ok(Cloned { origin: origin.clone(), place, bytes, counts })
    }

    fn fill_window(
        &self,
        engine: &Engine,
        from: Range<usize>,
        base: usize,
    ) -> Result<(), ControlError> {
        let mut next = from.start;
        while next < from.end {
            let mut backed = Vec::new();
            // Until this is dropped, blocks that were found in slots stay.
            let _reading = engine.backing().map(|backing| backing.reading(CPU));
            let passed = self.pass_pages(engine, &from, base, &mut next, &mut backed);
            let fetched = passed.and_then(|()| self.fetch_pages(engine, from.start, base, &backed));
            for handed in backed.iter().filter_map(|page| page.handed) {
                engine.give_up(CPU, handed);
            }
            fetched?;
        }
        Ok(())
    }

    /// Passes some pages of the cut, and lists those that are on the backing device.
    fn pass_pages(
        &self,
        engine: &Engine,
        from: &Range<usize>,
        base: usize,
        next: &mut usize,
        backed: &mut Vec<ToFetch>,
    ) -> Result<(), ControlError> {
        let reader = self.readers.enter(CPU);
        let cut = engine.cut().get(&reader);
        let cut = cut.ok_or_else(|| ControlError::new(Errno::EIO, "the clone has ended"))?;
        backed.try_reserve(AT_ONCE).map_err(|_| self.no_clone(IoError::NoMemory))?;
        for _ in 0..AT_A_TIME {
            let index = engine.next_touched(*next, from.end);
            *next = (index + 1).min(from.end);
            if index >= from.end || backed.len() == AT_ONCE {
                *next = index;
                break;
            }
            let to = base + (index - from.start);
            let page = engine.clone_page(&reader, CPU, cut, index, to);
            backed.extend(page.map_err(|error| self.no_clone(error))?);
        }
        match cut.is_broken() {
            true => {
                let message = format!(
                    "{} is not cloned: there was no room to keep what was overwritten meanwhile; \
                     clone it while less is written, or with a higher mem_limit",
                    self.name()
                );
                Err(ControlError::new(Errno::ENOSPC, message))
            }
            false => Ok(()),
        }
    }

    /// Reads pages from the backing device.
    fn fetch_pages(
        &self,
        engine: &Engine,
        from: usize,
        base: usize,
        backed: &[ToFetch],
    ) -> Result<(), ControlError> {
        let (Some(backing), false) = (engine.backing(), backed.is_empty()) else { return Ok(()) };
        let mut pages = Vec::new();
        pages.try_reserve_exact(backed.len()).map_err(|_| self.no_clone(IoError::NoMemory))?;
        pages.resize(backed.len(), [0; PAGE_SIZE]);
        let mut wanted: [Option<Wanted<'_>>; AT_ONCE] = [const { None }; AT_ONCE];
        let index_of = |page: &ToFetch| from + (page.index - base);
        for ((wanted, page), into) in wanted.iter_mut().zip(backed).zip(&mut pages) {
            let (index, place) = (index_of(page), page.place);
            *wanted = Some(Wanted { index, place, into, result: Ok(()) });
        }
        backing.read(CPU, &mut wanted[..backed.len()]);
        for wanted in wanted.iter().flatten() {
            wanted.result.map_err(|error| {
                let (page, path) = (wanted.index - from, backing.path());
                let message = format!("page {page} cannot be read from {path}: {error}");
                ControlError::new(Errno::EIO, message)
            })?;
        }
        let reader = self.readers.enter(CPU);
        for (page, bytes) in backed.iter().zip(&pages) {
            let fetched = Fetched { place: page.place, page: bytes };
            let filled = engine.clone_fetched(&reader, CPU, index_of(page), page.index, fetched);
            filled.map_err(|error| self.no_clone(error))?;
        }
        Ok(())
    }

    fn no_clone(&self, error: IoError) -> ControlError {
        let (name, errno) = (self.name(), Errno::ENOMEM);
        match error {
            IoError::NoSpace => {
                let why = "mem_limit has no room for what it has on its backing device";
                ControlError::new(Errno::ENOSPC, format!("{name} is not cloned: {why}"))
            }
            error => ControlError::new(errno, format!("{name} is not cloned: {error}")),
        }
    }
}

impl Cloned {
    /// The device that it is a clone of.
    #[must_use]
    pub fn origin(&self) -> &Arc<Disk> {
        &self.origin
    }

    /// Device `id` with these contents, which has the settings of its origin.
    #[must_use]
    pub fn into_disk(self, id: u32) -> Arc<Disk> {
        self.place.engine.windows().name(self.place.base, id, self.bytes);
        self.named(id)
    }

    /// The same, of a window that has its name.
    fn named(self, id: u32) -> Arc<Disk> {
        let Cloned { origin, place, bytes, counts } = self;
        let (resources, readers) = (origin.resources.clone(), origin.readers.clone());
        let disk = Disk::with(id, resources, readers, counts, Some(origin));
        disk.is_clone.store(true, Ordering::Relaxed);
        disk.generation.store(1, Ordering::Relaxed);
        // Nobody has published one there.
        let _ = disk.place.publish(Box::new(place));
        disk.bytes.store(bytes, Ordering::Relaxed);
        Arc::new(disk)
    }

    /// The clone of `origin` that another process left in a window of `engine`.
    pub(crate) fn recovered(
        origin: Arc<Disk>,
        engine: &Arc<Engine>,
        left: &LeftWindow,
        counts: Arc<Counts>,
    ) -> Arc<Disk> {
        let place = Place { engine: engine.clone(), base: left.pages.start };
        Cloned { origin, place, bytes: left.bytes, counts }.named(left.id)
    }
}
