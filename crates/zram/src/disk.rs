//! The device: a size, settings, statistics and users round an engine.

use alloc::{boxed::Box, format, string::String, sync::Arc};
use core::ops::Deref;

use block::{Abilities, BlockDevice, Geometry, IoError, Operation, Visit};
use control::{Errno, Fault};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Mutex, Published, ReaderEpochs};
use units::{Cpu, PAGE_SIZE, Page, pages_for};

use crate::access::Clock;
use crate::counts::{Count, Counts};
use crate::factory::{Factory, Plan};
use crate::settings::Settings;
use crate::store::{Loaded, PageStore};
use crate::{Stats, ranges};

/// What a device is made with.
pub struct DiskOptions {
    /// Its number: device 0 is `zram0`.
    pub id: u32,
    /// Where its engines are built.
    pub factory: Arc<dyn Factory>,
    /// What its pages are dated by.
    pub clock: Arc<Clock>,
    /// Whether the time of last use is kept for each page, when nobody chooses otherwise.
    pub track_access: bool,
}

/// A compressed RAM disk. It has a size, and so contents, between a write to `disksize` and one
/// to `reset`. All methods may be called by any number of threads at once.
pub struct Disk {
    id: u32,
    pub(crate) factory: Arc<dyn Factory>,
    clock: Arc<Clock>,
    track_access: bool,
    pub(crate) readers: Arc<ReaderEpochs>,
    pub(crate) engine: Published<Arc<dyn PageStore>>,
    bytes: AtomicU64,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) counts: Arc<Counts>,
    /// Held by whoever goes through all pages, or changes what that is done by. Taken before
    /// `settings`.
    pub(crate) post: Mutex<()>,
}

/// Pages that every device has addresses for, whatever its size, so that it can grow: 16 TiB.
const ROOM: u64 = 1 << 32;

impl Disk {
    /// A device without a size.
    #[must_use]
    pub fn new(options: DiskOptions) -> Arc<Disk> {
        let DiskOptions { id, factory, clock, track_access } = options;
        let (cpus, counting_cpus) = (factory.cpus(), factory.counting_cpus());
        let settings = Settings::new(&*factory, track_access);
        Arc::new(Disk {
            id,
            factory,
            clock,
            track_access,
            readers: Arc::new(ReaderEpochs::new(cpus)),
            engine: Published::default(),
            bytes: AtomicU64::new(0),
            settings: Mutex::new(settings),
            counts: Arc::new(Counts::new(counting_cpus)),
            post: Mutex::new(()),
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

    /// Its size in pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.bytes() / PAGE_SIZE as u64) as usize
    }

    /// Seconds by which its pages are dated.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.clock.now()
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
        // At once, not when a long writeback is over.
        self.refuse_a_second_size()?;
        let _post = self.post.lock();
        let settings = self.settings.lock();
        self.refuse_a_second_size()?;
        let rounded = rounded(bytes)?;
        let pages = rounded / PAGE_SIZE as u64;
        let room = pages.max(ROOM).max(pages.saturating_mul(2));
        let codecs = settings.codecs(&*self.factory)?;
        let plan = Plan {
            pages: usize::try_from(pages).map_err(|_| too_large(bytes))?,
            room: usize::try_from(room).unwrap_or(usize::MAX),
            codecs: &codecs,
            limit_frames: pages_for(settings.mem_limit),
            streams: settings.max_streams.unwrap_or(self.factory.stream_rules().usual),
            readers: self.readers.clone(),
            clock: settings.track_access.then(|| self.clock.clone()),
            counts: self.counts.clone(),
            backing: settings.backing.clone(),
        };
        let engine = self.factory.build(&plan)?;
        if self.engine.publish(Box::new(engine)).is_err() {
            return Err(Fault::new(Errno::EBUSY, format!("{} is in use", self.name())));
        }
        self.bytes.store(rounded, Ordering::Relaxed);
        Ok(())
    }

    fn refuse_a_second_size(&self) -> Result<(), Fault> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let message = format!("{} has a size already; reset it first", self.name());
        Err(Fault::new(Errno::EBUSY, message))
    }

    /// Changes the size of a device that has one, rounded up to whole pages. It can always grow; it
    /// can shrink when no page beyond the new end holds anything.
    ///
    /// # Errors
    /// `EINVAL` for a size of 0 or a device without one, `ENOMEM` when addresses for its tables are
    /// out, `EBUSY` when a page beyond the new end holds something. Nothing has changed then.
    pub fn resize(&self, bytes: u64) -> Result<(), Fault> {
        if bytes == 0 {
            return Err(Fault::invalid("a size of 0 is not a size; give at least one byte"));
        }
        let _post = self.post.lock();
        let engine = self.ready_engine()?;
        let _settings = self.settings.lock();
        let (rounded, was) = (rounded(bytes)?, self.bytes());
        let pages = rounded / PAGE_SIZE as u64;
        if pages > engine.capacity() as u64 {
            return Err(too_large(bytes));
        }
        let tail = pages as usize..(was / PAGE_SIZE as u64) as usize;
        self.refuse_if_held(&*engine, tail.clone())?;
        self.bytes.store(rounded, Ordering::Relaxed);
        if rounded < was {
            // Who saw the old size has done what it wanted after this.
            self.readers.wait_for_readers();
            self.refuse_if_held(&*engine, tail).inspect_err(|_| {
                self.bytes.store(was, Ordering::Relaxed);
            })?;
        }
        Ok(())
    }

    fn refuse_if_held(
        &self,
        engine: &dyn PageStore,
        pages: core::ops::Range<usize>,
    ) -> Result<(), Fault> {
        let mut index = engine.next_touched(pages.start, pages.end);
        while index < pages.end {
            if !engine.peek(index).is_empty() {
                let message = format!(
                    "page {index} of {} holds data beyond the new end; discard it first",
                    self.name()
                );
                return Err(Fault::new(Errno::EBUSY, message));
            }
            index = engine.next_touched(index + 1, pages.end);
        }
        Ok(())
    }

    /// Gives up all contents, the size, the settings and the statistics.
    ///
    /// # Errors
    /// `EBUSY` while there are users; nothing has changed then.
    pub fn reset(&self) -> Result<(), Fault> {
        // At once, not when a long writeback is over.
        self.refuse_if_used(&self.settings.lock())?;
        let _post = self.post.lock();
        let mut settings = self.settings.lock();
        self.refuse_if_used(&settings)?;
        self.bytes.store(0, Ordering::Relaxed);
        drop(self.engine.withdraw(&self.readers));
        self.counts.clear();
        *settings = Settings::new(&*self.factory, self.track_access);
        Ok(())
    }

    fn refuse_if_used(&self, settings: &Settings) -> Result<(), Fault> {
        if settings.openers == 0 {
            return Ok(());
        }
        let message = format!("{} has {} user(s); close it first", self.name(), settings.openers);
        Err(Fault::new(Errno::EBUSY, message))
    }

    /// Lets the peak of memory used be what is used now.
    pub fn reset_peak(&self) {
        self.with_engine(|engine| {
            engine.give_back(Cpu(0));
            engine.pool().reset_peak();
        });
    }

    /// Moves objects together and gives memory that comes free by it back, on the calling thread.
    /// Returns how many frames came free.
    ///
    /// # Errors
    /// `EINVAL` while the device is not initialised.
    pub fn compact(&self) -> Result<u64, Fault> {
        let engine = self.ready_engine()?;
        engine.give_back(Cpu(0));
        Ok(engine.pool().compact(Cpu(0)))
    }

    /// A share of the engine instead of a reader, for what waits for readers.
    pub(crate) fn engine(&self) -> Option<Arc<dyn PageStore>> {
        let reader = self.readers.enter(Cpu(0));
        self.engine.get(&reader).cloned()
    }

    /// The same, of a device that must be initialised.
    pub(crate) fn ready_engine(&self) -> Result<Arc<dyn PageStore>, Fault> {
        self.engine().ok_or_else(|| {
            Fault::invalid(format!("{} is not initialised; set its disksize first", self.name()))
        })
    }

    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&dyn PageStore) -> R) -> Option<R> {
        let reader = self.readers.enter(Cpu(0));
        self.engine.get(&reader).map(|engine| f(&**engine))
    }

    /// Statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (algorithm, mem_limit) = {
            let settings = self.settings.lock();
            (settings.algorithms[0].unwrap_or_default(), settings.mem_limit)
        };
        let sum = |which| self.counts.sum(which);
        let mut stats = Stats {
            disksize: self.bytes(),
            algorithm,
            mem_limit,
            streams: u64::from(self.factory.stream_rules().usual),
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
            backed_pages: sum(Count::WrittenBackPages),
            backed_reads: sum(Count::WritebackReads),
            backed_writes: sum(Count::WritebackWrites),
            ..Stats::default()
        };
        let reader = self.readers.enter(Cpu(0));
        if let Some(engine) = self.engine.get(&reader) {
            engine.give_back(Cpu(0));
            let pool = engine.pool().stats();
            stats.streams = engine.streams(&reader) as u64;
            stats.pool_bytes = pool.frames * PAGE_SIZE as u64;
            stats.pool_bytes_peak = pool.frames_peak * PAGE_SIZE as u64;
            stats.overhead_bytes = pool.overhead_bytes;
            stats.pages_compacted = pool.frames_compacted;
            stats.metadata_bytes = engine.table_bytes(self.pages());
        }
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
        self.with_engine(|engine| {
            engine.give_back(Cpu(0));
            engine.pool().validate();
        });
    }

    /// Stores page `index`, on this thread; `cpu` is the CPU it runs on, or any number.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `NoSpace`, `NoMemory`; the page is as it was.
    #[inline]
    pub fn store_page(&self, cpu: Cpu, index: u64, page: &Page) -> Result<(), IoError> {
        let reader = self.readers.enter(cpu);
        let engine = self.engine_for(&reader, cpu, index, 1)?;
        let stored = engine.store(&reader, cpu, index as usize, page);
        self.count_pages(cpu, Count::Writes, Count::FailedWrites, stored)
    }

    /// Loads page `index`, on this thread; zeroes if it was never stored.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`, `Corrupt`; what `page` holds then is undefined.
    #[inline]
    pub fn load_page(&self, cpu: Cpu, index: u64, page: &mut Page) -> Result<(), IoError> {
        let reader = self.readers.enter(cpu);
        let engine = self.engine_for(&reader, cpu, index, 1)?;
        let loaded = match engine.load(&reader, cpu, index as usize, page) {
            Ok(Loaded::Backed(_)) => self.fetch(engine, &reader, cpu, index as usize, page),
            loaded => loaded.map(|_| ()),
        };
        self.count_pages(cpu, Count::Reads, Count::FailedReads, loaded)
    }

    /// Empties `count` pages from `first` on; they read as zeroes afterwards.
    ///
    /// # Errors
    /// `OutOfRange`, `NotReady`.
    pub fn discard_pages(&self, cpu: Cpu, first: u64, count: u64) -> Result<(), IoError> {
        let reader = self.readers.enter(cpu);
        let engine = self.engine_for(&reader, cpu, first, count)?;
        engine.discard(&reader, cpu, first as usize, count as usize);
        self.counts.add(cpu, Count::NotifyFree, count as i64);
        Ok(())
    }

    fn engine_for<'p>(
        &self,
        reader: &'p sync::Reader<'_>,
        cpu: Cpu,
        first: u64,
        count: u64,
    ) -> Result<&'p dyn PageStore, IoError> {
        let pages = self.bytes() / PAGE_SIZE as u64;
        let engine = self.engine.get(reader).ok_or(IoError::NotReady)?;
        match first.checked_add(count) {
            Some(end) if end <= pages => Ok(&**engine),
            _ => {
                self.counts.add(cpu, Count::InvalidIo, 1);
                Err(IoError::OutOfRange)
            }
        }
    }

    /// Counts a page done, or failed.
    #[inline]
    pub(crate) fn count_pages(
        &self,
        cpu: Cpu,
        done: Count,
        failed: Count,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        self.counts.add(cpu, done, 1);
        if result.is_err() {
            self.counts.add(cpu, failed, 1);
        }
        result
    }
}

fn too_large(bytes: u64) -> Fault {
    let message = format!("there is no memory for the tables of a disk of {bytes} bytes");
    Fault::new(Errno::ENOMEM, message)
}

/// A size in whole pages.
fn rounded(bytes: u64) -> Result<u64, Fault> {
    pages_for(bytes).checked_mul(PAGE_SIZE as u64).ok_or_else(|| too_large(bytes))
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.bytes(), minimum_block: 1, preferred_block: PAGE_SIZE as u32 }
    }

    fn abilities(&self) -> Abilities {
        Abilities { read_only: false, discard: true, fast_zero: true, flush: false }
    }

    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        if let Operation::Flush = operation {
            return Ok(());
        }
        let reader = self.readers.enter(cpu);
        let (offset, length) = operation.range();
        let (first, count) = ranges::touched_pages(offset, length);
        let engine = self.engine_for(&reader, cpu, first, count)?;
        ranges::carry_out(self, engine, &reader, cpu, operation)
    }

    fn may_wait(&self, offset: u64, length: u64) -> bool {
        let reader = self.readers.enter(Cpu(0));
        let Some(engine) = self.engine.get(&reader) else { return false };
        if engine.backing().is_none() || self.counts.sum(Count::WrittenBackPages) == 0 {
            return false;
        }
        let (first, count) = ranges::touched_pages(offset, length);
        let end = first.saturating_add(count).min(self.pages() as u64);
        (first..end).any(|index| engine.peek(index as usize).is_backed())
    }

    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        let cpu = Cpu(0);
        let reader = self.readers.enter(cpu);
        let (first, count) = ranges::touched_pages(offset, length);
        let engine = self.engine_for(&reader, cpu, first, count)?;
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
    fn submit(&self, cpu: Cpu, operation: Operation<'_>) -> Result<(), IoError> {
        self.disk.submit(cpu, operation)
    }
    fn may_wait(&self, offset: u64, length: u64) -> bool {
        self.disk.may_wait(offset, length)
    }
    fn extents(&self, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.extents(offset, length, visit)
    }
}
