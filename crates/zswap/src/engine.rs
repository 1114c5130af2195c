//! The engine: it stores, loads and invalidates pages.
//!
//! A store makes an object and an entry and puts the word of the entry into the index of the area:
//! its commit point. The thread that takes a word out of an index owns the entry and disposes of
//! it. That is a store that displaces it, a load that takes the page, an invalidation or a
//! writeback. The thread takes the entry out of its list and passes it to [`sync::Retired`], which
//! keeps it until no reader can hold it.

mod admin;
mod areas;
mod compaction;
mod contents;
mod exchange;
mod frees;
mod headroom;
mod packing;
mod passes;
mod recompression;
mod scrub;
mod sweep;

use alloc::{boxed::Box, format, string::String, sync::Arc};

use block::BlockDevice;
use control::{ControlError, Errno};
use objects::{Objects, SharedObjects};
use pagealloc::{Frames, KeptMemory, MemoryProvider, NoMemory};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{EventCount, Mutex, PerCpuCounters, Published, Reader, ReaderEpochs, Retired};
use units::{Cpu, Page};
use zcomp::{CODECS, Chosen, prefetch_beginning};
use zsmalloc::Pool;

use crate::area::{Area, BATCH, PageLocks};
use crate::counts::{Count, Counts};
use crate::entry::Entries;
use crate::evictors::Evictors;
use crate::headroom::Provision;
use crate::index::MakeIndex;
use crate::lru::Ages;
use crate::memcg::Memcg;
use crate::outcome::{LoadError, Reject};
use crate::policy::Policy;
use crate::record::{MAX_MEMCGS, Record};
use crate::warming::Warming;
use crate::{Key, MAX_TYPES, SwapType, Word};

/// Entries of a CPU that may wait to be freed. Under shuttle the number is small, so that it is
/// reached in small models.
const WAITING: usize = if cfg!(shuttle) { 4 } else { 128 };

/// How often a page that has another place waits for what other threads write back.
const WAITS: u32 = 2;

/// The names of what outlives the process; those of an area have its number and how often it came
/// on.
pub(crate) const RECORD: &str = "swap.record";
pub(crate) const ZSPAGES: &str = "swap.zspages";
pub(crate) const ENTRIES: &str = "swap.entries";
pub(crate) const PACKS: &str = "swap.packs";

/// The names of the index and of the marks of an area.
pub(crate) fn names_of(swap: SwapType, generation: u64) -> (String, String) {
    let name = |what| format!("swap{swap}.{generation}.{what}");
    (name("index"), name("marks"))
}

/// Finds a codec by its name: `ENOENT` for an unknown name.
pub type FindCodec = Box<dyn Fn(&str) -> Result<Chosen, ControlError> + Send + Sync>;

/// The parts of an engine.
pub struct Parts {
    /// The source of frames.
    pub frames: Arc<dyn Frames>,
    /// The memory of the tables that another process needs to have the same cache; `None` if the
    /// cache ends with this process. The frames of `frames` are in such memory, too.
    pub kept: Option<Arc<dyn KeptMemory>>,
    /// The number of CPUs.
    pub cpus: usize,
    /// The number of CPUs with counters of their own: all CPUs, or 1 if all share one set.
    pub counting_cpus: usize,
    /// The first codec.
    pub codec: Chosen,
    /// Finds a codec by its name, for the administrator.
    pub find_codec: FindCodec,
    /// The memory size in pages that `max_pool_percent` refers to.
    pub total_pages: u64,
    /// The most pages that may be in the cache at once.
    pub entries: u32,
}

/// A cache of pages in front of swap areas. Any number of threads may call every method at once.
pub struct Zswap {
    pub(crate) provider: Arc<dyn MemoryProvider>,
    pub(crate) kept: Option<Arc<dyn KeptMemory>>,
    pub(crate) record: Record,
    pub(crate) objects: Objects,
    pub(crate) entries: Entries,
    /// Objects that several entries have parts of.
    pub(crate) packs: SharedObjects,
    pub(crate) ages: Ages,
    pub(crate) areas: [Published<Arc<Area>>; MAX_TYPES],
    pub(crate) memcgs: [Published<Memcg>; MAX_MEMCGS],
    /// The number of pages for each codec, by the codec of their objects.
    by_codec: PerCpuCounters<CODECS>,
    pub(crate) retired: Retired,
    /// The readers of areas, memcgs, codecs and objects.
    pub(crate) readers: Arc<ReaderEpochs>,
    pub(crate) policy: Policy,
    pub(crate) counts: Counts,
    pub(crate) evictors: Evictors,
    pub(crate) event: EventCount,
    /// Set when a store was refused for the pool's limit because no page could be written back. All
    /// stores are refused until the pool has shrunk to the accept threshold.
    reached_full: AtomicBool,
    /// Set while the background thread makes room, down to the accept threshold.
    pub(crate) evicting: AtomicBool,
    /// Frames that the last compaction should have gained and did not, while the pool is crowded.
    pub(crate) unmovable: AtomicU64,
    provision: Provision,
    warming: Warming,
    changing: Mutex<()>,
    pub(crate) find_codec: FindCodec,
    /// Makes the index of an area, if that is not the product's.
    other_index: Option<MakeIndex>,
    pub(crate) cpus: usize,
}

/// The options of an area.
#[derive(Clone)]
pub struct AreaOptions {
    /// The swap device. Pages are written back to it, each at its own offset. Without a device,
    /// pages stay in the cache.
    pub device: Option<Arc<dyn BlockDevice>>,
    /// The memcg of pages that are stored through [`crate::SwapDevice`].
    pub memcg: Memcg,
}

/// Who stores a page. It says whether an incompressible page may be refused when there is no device
/// for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The owner can keep a refused page (Linux's reclaim).
    MayKeep,
    /// A device of the area of this generation. A refused page is lost.
    Device(u64),
}

/// A page that comes to the cache.
#[derive(Clone, Copy)]
pub(crate) struct Offer<'a> {
    pub(crate) key: Key,
    /// The memcg that stores it; `None` for that of its area.
    pub(crate) memcg: Option<&'a Memcg>,
    pub(crate) page: &'a Page,
    pub(crate) owner: Owner,
}

impl Owner {
    /// Whether it may store into the area of this generation.
    fn has(self, generation: u64) -> bool {
        match self {
            Owner::MayKeep => true,
            Owner::Device(own) => own == generation,
        }
    }
}

impl Zswap {
    /// An engine without areas. Its only memcg is `default`.
    ///
    /// # Errors
    /// `ENOMEM` when memory or addresses are out.
    pub fn new(provider: Arc<dyn MemoryProvider>, parts: Parts) -> Result<Zswap, ControlError> {
        let codec = parts.codec.clone();
        let memory = memory_of(&provider, parts.kept.as_ref(), RECORD);
        let record = Record::create(&*memory, parts.entries);
        let record = record.map_err(|why| ControlError::new(Errno::ENOMEM, why))?;
        let zswap = Zswap::without_codec(provider, parts, record)?;
        zswap.install(0, codec)?;
        zswap.memcg("default")?;
        Ok(zswap)
    }

    /// As [`Zswap::new`], with another kind of index, for experiments and tests.
    ///
    /// # Errors
    /// Those of [`Zswap::new`].
    pub fn with_index(
        provider: Arc<dyn MemoryProvider>,
        parts: Parts,
        make: MakeIndex,
    ) -> Result<Zswap, ControlError> {
        let mut zswap = Zswap::new(provider, parts)?;
        zswap.other_index = Some(make);
        Ok(zswap)
    }

    /// An engine without areas, memcgs and codecs. Its entries and objects are those that another
    /// process left, and have to be recovered.
    pub(crate) fn without_codec(
        provider: Arc<dyn MemoryProvider>,
        parts: Parts,
        record: Record,
    ) -> Result<Zswap, ControlError> {
        let kept = parts.kept;
        let memory = |name: &str| memory_of(&provider, kept.as_ref(), name);
        let register = kept.as_ref().map(|_| record.register());
        let readers = Arc::new(ReaderEpochs::new(parts.cpus));
        let (frames, cpus) = (parts.frames, parts.cpus);
        let objects = Objects::new(&*memory(ZSPAGES), frames, readers.clone(), cpus, cpus);
        let entries = Entries::new(&*memory(ENTRIES), parts.entries, parts.cpus);
        // Each has two pages at least, but for moments.
        let packs = SharedObjects::new(&*memory(PACKS), parts.entries as usize / 2 + 2);
        let evictors = Evictors::new(parts.cpus);
        let zswap = Zswap {
            record,
            objects: objects.map_err(no_memory)?.registered(register),
            entries: entries.map_err(no_memory)?,
            packs: packs.map_err(no_memory)?,
            ages: Ages::default(),
            areas: core::array::from_fn(|_| Published::new(readers.clone())),
            memcgs: core::array::from_fn(|_| Published::new(readers.clone())),
            by_codec: PerCpuCounters::new(parts.counting_cpus),
            retired: Retired::new(parts.cpus, WAITING),
            readers,
            policy: Policy::new(parts.total_pages, evictors.pages()),
            counts: Counts::new(parts.counting_cpus),
            evictors,
            event: EventCount::default(),
            reached_full: AtomicBool::new(false),
            evicting: AtomicBool::new(false),
            unmovable: AtomicU64::new(0),
            provision: Provision::new(provider.is_ahead()),
            warming: Warming::default(),
            changing: Mutex::new(()),
            find_codec: parts.find_codec,
            other_index: None,
            cpus: parts.cpus,
            provider,
            kept,
        };
        zswap.apply_limit();
        Ok(zswap)
    }

    /// The memory of a table that another process may need.
    pub(crate) fn memory_of(&self, name: &str) -> Arc<dyn MemoryProvider> {
        memory_of(&self.provider, self.kept.as_ref(), name)
    }

    /// The pool of objects.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        self.objects.pool()
    }

    /// The size classes of the pool.
    #[must_use]
    pub fn size_classes(&self) -> zsmalloc::Classes {
        self.pool().classes()
    }

    /// Stores a copy of `page` for `memcg`, and replaces the old page. If there is no space, this
    /// thread writes other pages back first.
    ///
    /// # Errors
    /// [`Reject`]: the cache holds neither the new page nor the old one, and no thread is writing
    /// it to the device or will. So the caller may write it.
    pub fn store(&self, cpu: Cpu, key: Key, memcg: &Memcg, page: &Page) -> Result<(), Reject> {
        let offer = Offer { key, memcg: Some(memcg), page, owner: Owner::MayKeep };
        let stored = self.put(cpu, &offer);
        if stored.is_err() {
            self.invalidate_page(cpu, key);
        }
        stored
    }

    /// Stores as [`Zswap::store`], but a refused page leaves the old one in place.
    pub(crate) fn put(&self, cpu: Cpu, offer: &Offer<'_>) -> Result<(), Reject> {
        let key = offer.key;
        prefetch_beginning(offer.page);
        // A page that the device holds is replaced under its lock: see `area`.
        let reader = self.readers.enter(cpu);
        let area = self.area_of(&reader, key).filter(|area| area.is_on_device(key.offset));
        let behind = area.cloned();
        let mut locks = None;
        let mut stored = match &behind {
            None => {
                let stored = self.try_put(&reader, cpu, offer);
                drop(reader);
                stored
            }
            Some(area) => {
                // A thread that waits for a lock must not be a reader.
                drop(reader);
                locks.insert(PageLocks::of(area)).add(key.offset);
                self.try_put(&self.readers.enter(cpu), cpu, offer)
            }
        };
        if let Err(reject) = stored
            && reject.is_for_space()
        {
            stored = self.put_after_making_space(cpu, offer, reject);
        }
        if let (Ok(()), Some(area)) = (stored, &behind) {
            area.clear_on_device(cpu, key.offset);
        }
        drop(locks);
        if let Err(reject) = stored {
            self.counts.add(cpu, count_of(reject), 1);
        }
        self.ask_for_memory();
        stored
    }

    #[cold]
    fn put_after_making_space(
        &self,
        cpu: Cpu,
        offer: &Offer<'_>,
        mut reject: Reject,
    ) -> Result<(), Reject> {
        self.counts.add(cpu, Count::WritebackAttempted, 1);
        // The objects that wait for readers may be enough space.
        let mut again = self.quiesce(cpu);
        let (mut evicted, mut waits) = (false, 0);
        loop {
            if again {
                let reader = self.readers.enter(cpu);
                match self.try_put(&reader, cpu, offer) {
                    Ok(()) => {
                        self.counts.add(cpu, Count::SavedByWriteback, 1);
                        return Ok(());
                    }
                    Err(other) if !other.is_for_space() => return Err(other),
                    Err(other) => reject = other,
                }
            }
            // Memory that is provided ahead comes sooner than the writeback of other pages ends.
            if self.provision.is_ahead() && reject.is_for_memory() {
                return Err(reject);
            }
            let own = || self.area(offer.key.swap).map(|area| area.memcg.clone());
            let whose = match reject {
                Reject::MemcgLimit => offer.memcg.cloned().or_else(own),
                _ => None,
            };
            // Each round takes pages out of the cache, so the loop ends. A cache that must shrink,
            // to the accept threshold or to a lower limit, gets one round only for a page that has
            // another place.
            let (left, must_stay) = (self.evictors.left(), self.must_stay(offer));
            let reached_full = self.reached_full.load(Ordering::Relaxed);
            let must_shrink = reached_full || self.is_far_above_limit(whose.as_ref());
            let mut is_busy = false;
            if must_stay || !(evicted && must_shrink) {
                match self.evict(cpu, whose.as_ref(), BATCH) {
                    Some(done) if done.written > 0 => {
                        (again, evicted) = (true, true);
                        continue;
                    }
                    done => is_busy = done.is_none(),
                }
            }
            // What others write back makes space as well. A pool that is to shrink to the accept
            // threshold would refuse new pages in favour of older ones. Others may take the space
            // each time, so a page that has another place goes there before long.
            let may_wait = must_stay || is_busy && waits < WAITS;
            if whose.is_none() && may_wait && self.evictors.wait(left) {
                (again, waits) = (true, waits + 1);
                self.quiesce(cpu);
                continue;
            }
            // The cache is not full while pages leave, if others take the space each time.
            let was_beaten = is_busy && waits >= WAITS;
            if reject == Reject::PoolLimit && !was_beaten {
                self.reached_full.store(true, Ordering::Relaxed);
            }
            return Err(reject);
        }
    }

    /// Is the cache the only place for this page?
    fn must_stay(&self, offer: &Offer<'_>) -> bool {
        let has_device = || {
            let area = self.area(offer.key.swap);
            area.is_some_and(|area| area.device.is_some() && area.memcg.writeback())
        };
        offer.owner != Owner::MayKeep && !has_device()
    }

    /// Stores a page if there is space for it; otherwise nothing changes.
    pub(crate) fn try_put(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        offer: &Offer<'_>,
    ) -> Result<(), Reject> {
        if !self.policy.enabled() {
            return Err(Reject::Disabled);
        }
        let Offer { key, memcg, page, owner } = *offer;
        let area = self.area_of(reader, key).filter(|area| owner.has(area.generation));
        let area = area.ok_or(Reject::NoArea)?;
        let memcg = memcg.unwrap_or(&area.memcg);
        if memcg.is_full() {
            return Err(Reject::MemcgLimit);
        }
        self.admit(cpu)?;
        let leaves = || memcg.writeback() && area.device.is_some();
        let may_refuse = || owner == Owner::MayKeep && !leaves();
        let content = self.make(reader, cpu, page, may_refuse)?;
        let Some(word) = self.entries.take(cpu) else {
            self.free(cpu, content);
            return Err(Reject::NoEntry);
        };
        self.entries.write(word, key, memcg.0.number, content);
        // The entry joins its list before a thread can find it: a thread that finds it may take it
        // out.
        if area.device.is_some() {
            memcg.0.lru.join(&self.entries, &self.ages, cpu, word.number());
        }
        self.account(cpu, memcg, content, 1);
        area.clear_freed(reader, key.offset);
        match area.index.insert(cpu, key.offset, word) {
            Ok(old) => {
                self.counts.add(cpu, Count::Stores, 1);
                memcg.count_stored(cpu);
                if let Some(old) = old {
                    self.counts.add(cpu, Count::Duplicate, 1);
                    self.dispose(reader, cpu, old);
                }
                Ok(())
            }
            Err(NoMemory { .. }) => {
                self.dispose(reader, cpu, word);
                Err(Reject::NoEntry)
            }
        }
    }

    /// Checks whether a page may be stored. Wakes the background thread before the pool is full. At
    /// its limit, the pool may still have a hole of the right size: it decides when the size is
    /// known.
    #[inline]
    fn admit(&self, cpu: Cpu) -> Result<(), Reject> {
        let frames = self.pool().frames();
        if frames < self.policy.wake_frames() && !self.reached_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.admit_to_full(cpu, frames)
    }

    #[cold]
    fn admit_to_full(&self, cpu: Cpu, frames: u64) -> Result<(), Reject> {
        if !self.evicting.load(Ordering::Relaxed) && !self.evicting.swap(true, Ordering::Relaxed) {
            self.event.notify_all();
        }
        let max = self.policy.max_frames();
        if frames >= max {
            self.counts.add(cpu, Count::PoolLimitHit, 1);
            if frames > max || frames == 0 {
                return Err(Reject::PoolLimit);
            }
        }
        if self.reached_full.load(Ordering::Relaxed) {
            if frames > self.policy.accept_frames() {
                return Err(Reject::PoolLimit);
            }
            self.reached_full.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Fills `page` from the cache. `exclusive_loads` decides whether the cache keeps the page.
    ///
    /// # Errors
    /// [`LoadError`]; the contents of `page` are undefined then.
    pub fn load(&self, cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError> {
        if self.policy.exclusive_loads() {
            self.load_and_take(cpu, key, page)
        } else {
            self.load_and_keep(cpu, key, page)
        }
    }

    /// Fills `page` from the cache, which keeps the page.
    ///
    /// # Errors
    /// Those of [`Zswap::load`].
    pub fn load_and_keep(&self, cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError> {
        let reader = self.readers.enter(cpu);
        let area = self.area_of(&reader, key).ok_or(LoadError::NotFound)?;
        let _reading = self.retired.read(cpu);
        let word = self.load_here(&reader, cpu, (area, key.offset), page)?;
        self.count_load(&reader, cpu, word);
        Ok(())
    }

    /// Loads as [`Zswap::load_and_keep`] for a caller that is a reader already and also reads
    /// `retired`. The caller counts the load. Returns the word of the entry.
    #[inline]
    pub(crate) fn load_here(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        (area, offset): (&Area, u64),
        page: &mut Page,
    ) -> Result<Word, LoadError> {
        let word = area.index.get(cpu, offset).ok_or(LoadError::NotFound)?;
        self.expand(reader, cpu, word, page)?;
        self.refer(cpu, word);
        Ok(word)
    }

    /// Counts a load of an entry. The caller reads `retired`, so the entry is the same still.
    fn count_load(&self, reader: &Reader<'_>, cpu: Cpu, word: Word) {
        self.counts.add(cpu, Count::Loads, 1);
        if let Some(memcg) = self.memcg_of(reader, word.number()) {
            memcg.count_loaded(cpu, 1);
        }
    }

    /// Fills `page` from the cache and takes it out: the caller has the only copy then.
    ///
    /// # Errors
    /// Those of [`Zswap::load`].
    pub fn load_and_take(&self, cpu: Cpu, key: Key, page: &mut Page) -> Result<(), LoadError> {
        let reader = self.readers.enter(cpu);
        let area = self.area_of(&reader, key).ok_or(LoadError::NotFound)?;
        let reading = self.retired.read(cpu);
        let word = area.index.get(cpu, key.offset).ok_or(LoadError::NotFound)?;
        self.expand(&reader, cpu, word, page)?;
        self.refer(cpu, word);
        self.count_load(&reader, cpu, word);
        drop(reading);
        // If the device holds the page too, its mark is cleared under the lock: otherwise the mark
        // could belong to a later page.
        let behind = area.is_on_device(key.offset).then(|| area.clone());
        match behind {
            None => self.take_out(&reader, cpu, area, (key.offset, word)),
            Some(area) => {
                // A thread that waits for a lock must not be a reader.
                drop(reader);
                let mut locks = PageLocks::of(&area);
                locks.add(key.offset);
                if area.index.get(cpu, key.offset) == Some(word) {
                    area.clear_on_device(cpu, key.offset);
                    self.take_out(&self.readers.enter(cpu), cpu, &area, (key.offset, word));
                }
            }
        }
        Ok(())
    }

    /// Takes a loaded page out. If another thread has taken or replaced it already, the load came
    /// before that.
    fn take_out(&self, reader: &Reader<'_>, cpu: Cpu, area: &Area, (offset, word): (u64, Word)) {
        if area.index.remove_if(cpu, offset, word) {
            self.dispose(reader, cpu, word);
        }
    }
}

impl Drop for Zswap {
    fn drop(&mut self) {
        // Areas are given up by `swapoff`. Another process finds those that are on.
        let reader = self.readers.enter(Cpu(0));
        if self.kept.is_some() && self.areas.iter().any(|area| area.get(&reader).is_some()) {
            self.objects.leave();
        }
    }
}

fn memory_of(
    provider: &Arc<dyn MemoryProvider>,
    kept: Option<&Arc<dyn KeptMemory>>,
    name: &str,
) -> Arc<dyn MemoryProvider> {
    kept.map_or_else(|| provider.clone(), |kept| kept.provider(name))
}

fn count_of(reject: Reject) -> Count {
    match reject {
        Reject::NoArea | Reject::Disabled => Count::RejectDisabled,
        Reject::PoolLimit | Reject::MemcgLimit => Count::RejectReclaimFail,
        Reject::NoMemory => Count::RejectAllocFail,
        Reject::NoEntry => Count::RejectEntryFail,
        Reject::Incompressible => Count::RejectCompressFail,
        Reject::Poor => Count::RejectCompressPoor,
    }
}

pub(crate) fn no_memory(error: NoMemory) -> ControlError {
    ControlError::new(Errno::ENOMEM, format!("{error}"))
}
