//! The device: users and statistics.

mod configure;
mod family;
mod lifecycle;
mod place;
mod settings;
mod stats;
mod when_full;

pub(crate) use lifecycle::Unpublished;
pub(crate) use place::Place;
pub use settings::Which;
pub(crate) use settings::{Settings, find};
pub use stats::{Density, Stats};
pub use when_full::WhenFull;
pub(crate) use when_full::{Hand, Moved, PERIOD, Seen};

use alloc::{format, string::String, sync::Arc};
use core::ops::Deref;

use block::{Abilities, BlockDevice, Context, Geometry, IoError, Operation, Visit};
use control::ControlError;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Mutex, Published, ReaderEpochs};
use units::{Cpu, PAGE_SIZE};

use crate::counts::{Count, Counts};
use crate::engine::Engine;
use crate::resources::Resources;
use crate::tiering::{TierStats, TierWalk};
use when_full::Full;

/// A compressed RAM disk. It has a size and contents from a write to `disksize` until a write to
/// `reset`. Any number of threads may call all methods at once.
pub struct Disk {
    id: u32,
    /// How often the device got its size.
    pub(crate) generation: AtomicU64,
    pub(crate) resources: Arc<Resources>,
    pub(crate) readers: Arc<ReaderEpochs>,
    /// The engine, and the part of its slots that is the device's.
    pub(crate) place: Published<Place>,
    /// The device that it is a clone of, or was.
    pub(crate) origin: Option<Arc<Disk>>,
    /// It is one now.
    pub(crate) is_clone: AtomicBool,
    pub(crate) bytes: AtomicU64,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) counts: Arc<Counts>,
    /// Held by a thread that goes through all pages, makes room, or changes the codecs, the size or
    /// the backing device. Taken before `settings`.
    pub(crate) post: Mutex<Hand>,
    /// What moves pages between tiers by itself. Taken after `post`.
    pub(crate) tier_walk: Mutex<Option<TierWalk>>,
    /// What that did. Held for moments: the walk may wait for the backing device.
    pub(crate) tier_stats: Mutex<TierStats>,
    /// What a write does at `mem_limit`.
    pub(crate) full: Full,
    /// The device is being restored, which may take long.
    pub(crate) restoring: AtomicBool,
}

impl Disk {
    /// Device `id` (0 is `zram0`), without a size.
    #[must_use]
    pub fn new(id: u32, resources: Arc<Resources>) -> Arc<Disk> {
        let readers = Arc::new(ReaderEpochs::new(resources.cpus));
        let counts = Arc::new(Counts::new(resources.counting_cpus));
        Arc::new(Disk::with(id, resources, readers, counts, None))
    }

    /// A device without a size, with these readers and counters.
    pub(crate) fn with(
        id: u32,
        resources: Arc<Resources>,
        readers: Arc<ReaderEpochs>,
        counts: Arc<Counts>,
        origin: Option<Arc<Disk>>,
    ) -> Disk {
        Disk {
            id,
            generation: AtomicU64::new(0),
            place: Published::new(readers.clone()),
            origin,
            is_clone: AtomicBool::new(false),
            readers,
            bytes: AtomicU64::new(0),
            settings: Mutex::new(Settings::new(&resources)),
            counts,
            post: Mutex::new(Hand::default()),
            tier_walk: Mutex::new(None),
            tier_stats: Mutex::new(TierStats::default()),
            full: Full::new(),
            restoring: AtomicBool::new(false),
            resources,
        }
    }

    /// The number of the device.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How often the device got its size. What outlives the process has this number in its name.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The name of the device, `zram0` for device 0.
    #[must_use]
    pub fn name(&self) -> String {
        format!("zram{}", self.id)
    }

    /// The size of the device in bytes; 0 while it is not initialised.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The size of the device in pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        (self.bytes() / PAGE_SIZE as u64) as usize
    }

    /// The present time in seconds, as the device dates its pages.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.resources.clock.now()
    }

    /// Adds a user. The device cannot be reset or removed while it has users.
    #[must_use]
    pub fn open(self: &Arc<Disk>) -> Opener {
        self.settings.lock().openers += 1;
        Opener { disk: self.clone() }
    }

    /// The number of users.
    #[must_use]
    pub fn openers(&self) -> u32 {
        self.settings.lock().openers
    }

    /// A share of the engine, for a caller that waits for readers and so must not be one.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        let reader = self.readers.enter(Cpu(0));
        self.place.get(&reader).map(|place| place.engine.clone())
    }

    /// A share of the engine; an error while the device is not initialised.
    pub(crate) fn ready_engine(&self) -> Result<Arc<Engine>, ControlError> {
        self.engine().ok_or_else(|| {
            ControlError::invalid(format!(
                "{} is not initialised; set its disksize first",
                self.name()
            ))
        })
    }

    pub(crate) fn with_engine<R>(&self, f: impl FnOnce(&Engine) -> R) -> Option<R> {
        let reader = self.readers.enter(Cpu(0));
        self.place.get(&reader).map(|place| f(&place.engine))
    }

    /// The size classes of the pool; none while the device is not initialised.
    #[must_use]
    pub fn size_classes(&self) -> zsmalloc::Classes {
        self.with_engine(|engine| engine.pool().classes()).unwrap_or_default()
    }

    /// The statistics of the device.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (algorithm, mem_limit) = {
            let settings = self.family().settings.lock();
            (settings.algorithms[0].unwrap_or_default(), settings.mem_limit)
        };
        // What waits to be freed counts no more, in bytes of objects as in frames of the pool.
        self.with_engine(|engine| engine.give_back(Cpu(0)));
        let sum = |which| self.counts.sum(which);
        let mut stats = Stats {
            disksize: self.bytes(),
            algorithm,
            mem_limit,
            streams: u64::from(self.resources.streams.usual(self.resources.cpus)),
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
            lost_pages: sum(Count::LostPages),
            ..Stats::default()
        };
        let reader = self.readers.enter(Cpu(0));
        if let Some(Place { engine, base }) = self.place.get(&reader) {
            stats.streams = engine.streams(&reader) as u64;
            stats.metadata_bytes = engine.table_bytes(*base..*base + self.pages());
            // The pool counts once, with the origin.
            if *base == 0 {
                let pool = engine.pool().stats();
                stats.pool_bytes = pool.frames * PAGE_SIZE as u64;
                stats.pool_bytes_peak = pool.frames_peak * PAGE_SIZE as u64;
                stats.overhead_bytes = pool.overhead_bytes;
                stats.pages_compacted = pool.frames_compacted;
            }
        }
        stats
    }

    /// Checks the structures of the pool. Call it only while no thread reads or writes.
    ///
    /// # Panics
    /// The message names the structures that contradict each other.
    pub fn validate(&self) {
        self.with_engine(|engine| {
            engine.give_back(Cpu(0));
            engine.pool().validate();
        });
    }
}

/// A user of a device while it lives. It dereferences to the device.
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
    fn perform(&self, context: Context, operation: Operation<'_>) -> Result<(), IoError> {
        self.disk.perform(context, operation)
    }
    fn extents(&self, cpu: Cpu, offset: u64, length: u64, visit: Visit<'_>) -> Result<(), IoError> {
        self.disk.extents(cpu, offset, length, visit)
    }
}
