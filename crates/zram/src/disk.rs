//! The device: a size, settings, statistics and users round an engine.

use alloc::{boxed::Box, format, string::String, sync::Arc};
use core::ops::Deref;

use block::{Abilities, BlockDevice, Geometry, IoError, Operation, Visit};
use control::{Errno, Fault};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, Pins, Published};
use units::{Lane, PAGE_SIZE, Page, pages_for};
use zcomp::Params;

use crate::counts::{Count, Counts};
use crate::engine::PageStore;
use crate::life::{Plan, Workshop};
use crate::{Stats, ranges};

/// What a device is made with.
pub struct DiskOptions {
    /// Its number: device 0 is `zram0`.
    pub id: u32,
    /// Where its engines are built.
    pub workshop: Arc<dyn Workshop>,
}

/// A compressed RAM disk. It has a size, and so contents, between a write to `disksize` and one
/// to `reset`. All methods may be called by any number of threads at once.
pub struct Disk {
    id: u32,
    workshop: Arc<dyn Workshop>,
    pins: Arc<Pins>,
    engine: Published<Arc<dyn PageStore>>,
    bytes: AtomicU64,
    settings: Mutex<Settings>,
    pub(crate) counts: Arc<Counts>,
}

struct Settings {
    algorithm: &'static str,
    params: Params,
    mem_limit: u64,
    openers: u32,
}

impl Disk {
    /// A device without a size.
    #[must_use]
    pub fn new(options: DiskOptions) -> Arc<Disk> {
        let lanes = options.workshop.lanes();
        let settings = Settings::new(&*options.workshop);
        Arc::new(Disk {
            id: options.id,
            workshop: options.workshop,
            pins: Arc::new(Pins::new(lanes)),
            engine: Published::default(),
            bytes: AtomicU64::new(0),
            settings: Mutex::new(settings),
            counts: Arc::new(Counts::new(lanes)),
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name, `zram0` for device 0.
    #[must_use]
    pub fn name(&self) -> String {
        format!("zram{}", self.id)
    }

    /// Its size in bytes; 0 while it is not initialised.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Becomes a user of the device: it cannot be reset or removed while there are users.
    #[must_use]
    pub fn open(self: &Arc<Disk>) -> Opener {
        self.settings.lock().openers += 1;
        Opener { disk: self.clone() }
    }

    /// How many users there are.
    #[must_use]
    pub fn openers(&self) -> u32 {
        self.settings.lock().openers
    }

    /// Gives the device its size, rounded up to whole pages, and so makes it ready.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0 or a codec parameter out of range, `EBUSY` when it has a size
    /// already, `ENOMEM` when memory or addresses for its tables are out. Nothing has changed
    /// then. (Linux, `Documentation/admin-guide/blockdev/zram.rst`, "Set Disksize".)
    pub fn set_disksize(&self, bytes: u64) -> Result<(), Fault> {
        if bytes == 0 {
            return Err(Fault::invalid("a disksize of 0 is not a size; give at least one byte"));
        }
        let settings = self.settings.lock();
        if self.bytes() != 0 {
            let message = format!("{} has a size already; reset it first", self.name());
            return Err(Fault::new(Errno::EBUSY, message));
        }
        let pages = pages_for(bytes);
        let too_large = || {
            let message = format!("there is no memory for the tables of a disk of {bytes} bytes");
            Fault::new(Errno::ENOMEM, message)
        };
        let rounded = pages.checked_mul(PAGE_SIZE as u64).ok_or_else(too_large)?;
        let plan = Plan {
            pages: usize::try_from(pages).map_err(|_| too_large())?,
            algorithm: settings.algorithm,
            params: &settings.params,
            limit_frames: pages_for(settings.mem_limit),
            pins: self.pins.clone(),
            counts: self.counts.clone(),
        };
        let engine = self.workshop.build(&plan)?;
        if self.engine.publish(Box::new(engine)).is_err() {
            return Err(Fault::new(Errno::EBUSY, format!("{} is in use", self.name())));
        }
        self.bytes.store(rounded, Ordering::Relaxed);
        Ok(())
    }

    /// Gives up all contents, the size, the settings and the statistics.
    ///
    /// # Errors
    /// `EBUSY` while there are users; nothing has changed then.
    pub fn reset(&self) -> Result<(), Fault> {
        let mut settings = self.settings.lock();
        if settings.openers != 0 {
            let users = settings.openers;
            let message = format!("{} has {users} user(s); close it first", self.name());
            return Err(Fault::new(Errno::EBUSY, message));
        }
        self.bytes.store(0, Ordering::Relaxed);
        drop(self.engine.withdraw(&self.pins));
        self.counts.clear();
        *settings = Settings::new(&*self.workshop);
        Ok(())
    }

    /// The names of the codecs there are, and which is chosen.
    pub(crate) fn algorithms(&self) -> (alloc::vec::Vec<&'static str>, &'static str) {
        (self.workshop.algorithms(), self.settings.lock().algorithm)
    }

    /// Chooses the codec, and gives its parameters back their defaults.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size, `EINVAL` for a name that is not a codec's (the message
    /// lists them). Nothing has changed then.
    pub fn set_algorithm(&self, name: &str) -> Result<(), Fault> {
        let known = self.workshop.algorithms();
        let Some(algorithm) = known.iter().find(|known| **known == name) else {
            let message = format!("no algorithm {name:?}; there are: {}", known.join(" "));
            return Err(Fault::invalid(message));
        };
        let mut settings = self.settings.lock();
        self.refuse_if_ready("the algorithm")?;
        settings.algorithm = algorithm;
        settings.params = Params::default();
        Ok(())
    }

    /// Sets the parameters of the chosen codec. They are judged when the device gets its size.
    ///
    /// # Errors
    /// `EBUSY` once the device has a size.
    pub fn set_params(&self, params: Params) -> Result<(), Fault> {
        let mut settings = self.settings.lock();
        self.refuse_if_ready("algorithm parameters")?;
        settings.params = params;
        Ok(())
    }

    fn refuse_if_ready(&self, what: &str) -> Result<(), Fault> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let message = format!(
            "{what} of {} cannot change now that it has a size; reset it first",
            self.name()
        );
        Err(Fault::new(Errno::EBUSY, message))
    }

    /// Limits the memory of the pool to `bytes`, rounded up to pages; 0 lifts the limit. Pages that
    /// are there stay, also above a new limit.
    pub fn set_mem_limit(&self, bytes: u64) {
        let frames = pages_for(bytes);
        let mut settings = self.settings.lock();
        settings.mem_limit = frames.saturating_mul(PAGE_SIZE as u64);
        self.with_engine(|engine| engine.pool().set_limit(frames));
    }

    /// Lets the peak of memory used be what is used now.
    pub fn reset_peak(&self) {
        self.with_engine(|engine| engine.pool().reset_peak());
    }

    /// Moves objects together and gives memory that comes free by it back, on the calling thread.
    /// Returns how many frames came free.
    ///
    /// # Errors
    /// `EINVAL` while the device is not initialised.
    pub fn compact(&self) -> Result<u64, Fault> {
        // A share of the engine instead of a pin, because compaction waits for pins.
        let engine = {
            let pin = self.pins.pin(Lane(0));
            self.engine.get(&pin).cloned()
        };
        engine.map(|engine| engine.pool().compact(Lane(0))).ok_or_else(|| {
            Fault::invalid(format!("{} is not initialised; set its disksize first", self.name()))
        })
    }

    fn with_engine<R>(&self, f: impl FnOnce(&dyn PageStore) -> R) -> Option<R> {
        let pin = self.pins.pin(Lane(0));
        self.engine.get(&pin).map(|engine| f(&**engine))
    }

    /// Statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (algorithm, mem_limit) = {
            let settings = self.settings.lock();
            (settings.algorithm, settings.mem_limit)
        };
        let sum = |which| self.counts.sum(which);
        let mut stats = Stats {
            disksize: self.bytes(),
            algorithm,
            mem_limit,
            streams: self.workshop.lanes() as u64,
            pages_stored: sum(Count::PagesStored),
            orig_bytes: sum(Count::PagesStored) * PAGE_SIZE as u64,
            compressed_bytes: sum(Count::ComprBytes),
            same_filled_pages: sum(Count::SamePages),
            zero_pages: sum(Count::ZeroPages),
            huge_pages: sum(Count::HugePages),
            huge_pages_since: sum(Count::HugePagesSince),
            num_reads: sum(Count::Reads),
            num_writes: sum(Count::Writes),
            failed_reads: sum(Count::FailedReads),
            failed_writes: sum(Count::FailedWrites),
            invalid_io: sum(Count::InvalidIo),
            notify_free: sum(Count::NotifyFree),
            ..Stats::default()
        };
        self.with_engine(|engine| {
            let pool = engine.pool().stats();
            stats.streams = engine.streams() as u64;
            stats.pool_bytes = pool.frames * PAGE_SIZE as u64;
            stats.pool_bytes_peak = pool.frames_peak * PAGE_SIZE as u64;
            stats.overhead_bytes = pool.overhead_bytes;
            stats.pages_compacted = pool.frames_compacted;
            stats.metadata_bytes = engine.table_bytes();
        });
        stats
    }

    /// The name of the slot scheme in use, once the device has a size.
    #[must_use]
    pub fn scheme(&self) -> Option<&'static str> {
        self.with_engine(|engine| engine.scheme())
    }

    /// Checks the pool's structures; only while nobody reads or writes.
    ///
    /// # Panics
    /// Says what contradicts what.
    pub fn validate(&self) {
        self.with_engine(|engine| engine.pool().validate());
    }

    /// Stores page `index`, on this thread; `lane` is the CPU it runs on, or any number.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `NoSpace`, `NoMemory`; the page is as it was.
    #[inline]
    pub fn store_page(&self, lane: Lane, index: u64, page: &Page) -> Result<(), IoError> {
        let pin = self.pins.pin(lane);
        let engine = self.engine_for(&pin, lane, index, 1)?;
        let stored = engine.store(&pin, lane, index as usize, page);
        self.count_pages(lane, Count::Writes, Count::FailedWrites, stored)
    }

    /// Loads page `index`, on this thread; zeroes if it was never stored.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `Corrupt`; what `page` holds then is undefined.
    #[inline]
    pub fn load_page(&self, lane: Lane, index: u64, page: &mut Page) -> Result<(), IoError> {
        let pin = self.pins.pin(lane);
        let engine = self.engine_for(&pin, lane, index, 1)?;
        let loaded = engine.load(&pin, lane, index as usize, page);
        self.count_pages(lane, Count::Reads, Count::FailedReads, loaded)
    }

    /// Empties `count` pages from `first` on; they read as zeroes afterwards.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`.
    pub fn discard_pages(&self, lane: Lane, first: u64, count: u64) -> Result<(), IoError> {
        let pin = self.pins.pin(lane);
        let engine = self.engine_for(&pin, lane, first, count)?;
        engine.discard(&pin, lane, first as usize, count as usize);
        self.counts.add(lane, Count::NotifyFree, count as i64);
        Ok(())
    }

    fn engine_for<'p>(
        &self,
        pin: &'p sync::Pin<'_>,
        lane: Lane,
        first: u64,
        count: u64,
    ) -> Result<&'p dyn PageStore, IoError> {
        let pages = self.bytes() / PAGE_SIZE as u64;
        let engine = self.engine.get(pin).ok_or(IoError::NotReady)?;
        match first.checked_add(count) {
            Some(end) if end <= pages => Ok(&**engine),
            _ => {
                self.counts.add(lane, Count::InvalidIo, 1);
                Err(IoError::OutOfRange)
            }
        }
    }

    /// Counts a page done, or failed.
    #[inline]
    pub(crate) fn count_pages(
        &self,
        lane: Lane,
        done: Count,
        failed: Count,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        self.counts.add(lane, done, 1);
        if result.is_err() {
            self.counts.add(lane, failed, 1);
        }
        result
    }
}

impl Settings {
    fn new(workshop: &dyn Workshop) -> Settings {
        Settings {
            algorithm: workshop.default_algorithm(),
            params: Params::default(),
            mem_limit: 0,
            openers: 0,
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes(), minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: false, discard: true, fast_zero: true, flush: false }
    }

    fn submit(&self, lane: Lane, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Flush = operation {
            return Ok(());
        }
        let pin = self.pins.pin(lane);
        let (offset, length) = operation.range();
        let (first, count) = ranges::touched_pages(offset, length);
        let engine = self.engine_for(&pin, lane, first, count)?;
        ranges::carry_out(self, engine, &pin, lane, operation)
    }

    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let lane = Lane(0);
        let pin = self.pins.pin(lane);
        let (first, count) = ranges::touched_pages(offset, length);
        let engine = self.engine_for(&pin, lane, first, count)?;
        ranges::clip(offset, length, visit, |visit| {
            engine.extents(first as usize, count as usize, visit);
        });
        Ok(())
    }
}

/// A user of a device, for as long as it lives. It is the device.
pub struct Opener {
    disk: Arc<Disk>,
}

impl Deref for Opener {
    type Target = Disk;
    fn deref(&self) -> &Disk {
        &self.disk
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.disk.settings.lock().openers -= 1;
    }
}

impl BlockDevice for Opener {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn abilities(&self) -> Abilities {
        self.disk.abilities()
    }
    fn submit(&self, lane: Lane, operation: Operation<'_>) -> Result<(), IoError> {
        self.disk.submit(lane, operation)
    }
    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.extents(offset, length, visit)
    }
}
