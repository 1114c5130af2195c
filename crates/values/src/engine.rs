//! The store: values are put, found and taken out.

mod cloning;
mod compaction;
mod contents;
mod eviction;
mod frees;
mod grouping;
mod keys;
mod loading;
mod making;
mod publishing;
mod reading;
mod recompression;
mod recovery;
mod saving;
mod upkeep;

pub use loading::Loading;
pub use saving::Saving;

use alloc::{boxed::Box, format, sync::Arc, vec, vec::Vec};
use core::ops::Deref;

use pagealloc::{MemoryProvider, NoMemory};
use sync::atomic::{AtomicU64, Ordering};
use sync::{CachePadded, Mutex, PerCpu, PerCpuCounters, Reader, Retired};
use twox_hash::XxHash3_64;
use units::{Cpu, PAGE_SIZE};
use zcomp::Compressor;
use zsmalloc::{Limits, Pool, Room};

use crate::family::{Count, Family, Own};
use crate::groups::Groups;
use crate::head::Head;
use crate::index::{Chain, END, Index};
use crate::outcome::{NoStore, PutError, Stats};
use crate::scratch::{Making, Reading, SMALL, judge_unit};
use crate::state::{Apart, Cold, Hands, Pending, Swept};
use crate::word::{Fingerprint, Place, Word};
use crate::{At, GetError, MAX_KEY, MAX_VALUE, Parts, PutOptions};

/// The least limit, in bytes: see [`judge_limit`].
pub const LEAST_LIMIT: u64 = 1 << 20;
/// Words of a CPU that wait for readers.
const RETIRED: usize = 512;
/// Objects of a value of more bytes are given back at once, with a wait for readers: many of them
/// would be much memory that waits.
const LARGE: usize = 64 << 10;
/// Frames of the limit that only groups and moves may take, for each CPU: an object needs its new
/// place before the old one is free.
const SPARE_FRAMES: u64 = 16;

/// A store of values. Any number of threads may call every method at once.
pub struct Values {
    own: Arc<Own>,
    shared: Arc<Shared>,
    /// Where [`Values::upkeep`] goes on.
    swept: Mutex<Swept>,
    /// Values that were lost on the way from another process.
    lost: u64,
}

/// What a store and its clones have in common.
#[doc(hidden)]
pub struct Shared {
    family: Family,
    pool: Pool,
    groups: Groups,
    retired: Retired,
    codec: Arc<dyn Compressor>,
    cold: Option<Cold>,
    reading: Box<[Mutex<Reading>]>,
    making: Box<[Mutex<Making>]>,
    pending: PerCpu<Mutex<Pending>>,
    /// Buffers for groups that are made or taken apart.
    buffers: Mutex<Vec<Vec<u8>>>,
    hands: Hands,
    limit: CachePadded<AtomicU64>,
    /// Frames that the last compaction could not gain, though the counts of the pool say so.
    unmovable: AtomicU64,
    cpus: usize,
    unit: usize,
    seed: u64,
    evict: bool,
    group: bool,
    /// Its objects outlive it.
    kept: bool,
}

/// A value whose word was taken out of the index of the store, and that is not freed yet.
#[derive(Clone, Copy)]
struct Displaced {
    word: Word,
    /// Bytes of its key and value.
    data: usize,
    /// No other store has the word.
    was_last: bool,
}

impl Deref for Values {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Values {
    /// Makes an empty store whose tables take memory from `provider` as they grow.
    ///
    /// # Errors
    /// [`NoStore`] for a unit or a limit that is not allowed, a codec that takes pages only, and
    /// when memory or address space is out.
    pub fn new(provider: &dyn MemoryProvider, parts: Parts) -> Result<Values, NoStore> {
        let all = u64::from(parts.frames.capacity()) * PAGE_SIZE as u64;
        let most = parts.options.limit.unwrap_or(u64::MAX).min(all);
        let index = Index::new(provider, keys_of(most)).map_err(no_memory)?;
        let groups = Groups::new(provider, groups_of(most)).map_err(no_memory)?;
        Values::build(provider, (index, groups), parts, false)
    }

    /// Makes an empty store whose objects outlive it: with the memory of `tables` and the frames,
    /// [`Values::recover`] makes it anew, in this process or another one, however this one ended.
    /// A drop gives nothing up. The sizes of the tables follow from the number of frames alone.
    ///
    /// # Errors
    /// As for [`Values::new`].
    pub fn kept(tables: &dyn MemoryProvider, parts: Parts) -> Result<Values, NoStore> {
        let all = u64::from(parts.frames.capacity()) * PAGE_SIZE as u64;
        let index = Index::new(tables, keys_of(all)).map_err(no_memory)?;
        let groups = Groups::new(tables, groups_of(all)).map_err(no_memory)?;
        Values::build(tables, (index, groups), parts, true)
    }

    fn build(
        provider: &dyn MemoryProvider,
        (index, groups): (Index, Groups),
        parts: Parts,
        kept: bool,
    ) -> Result<Values, NoStore> {
        let Parts { frames, cpus, codec, seed, options } = parts;
        judge_unit(options.unit)?;
        let limit = options.limit.unwrap_or(u64::MAX);
        judge_limit(limit)?;
        let cpus = cpus.max(1);
        let cold = options.recompress.map(|it| Cold::new(it, options.unit)).transpose()?;
        let second = cold.as_ref().map(|cold| &*cold.codec);
        let reading = |_| Ok(Mutex::new(Reading::new(&*codec, second, options.unit)?));
        let making = |_| Ok(Mutex::new(Making::new(&*codec, options.unit)?));
        let own = Arc::new(Own {
            number: 0,
            index,
            counts: PerCpuCounters::new(cpus),
            evicted: options.evicted.map(Arc::from),
        });
        let shared = Shared {
            family: Family::new(own.clone()),
            pool: Pool::new(provider, frames).map_err(no_memory)?,
            groups,
            retired: Retired::new(cpus, RETIRED),
            reading: (0..cpus).map(reading).collect::<Result<_, NoStore>>()?,
            making: (0..cpus).map(making).collect::<Result<_, NoStore>>()?,
            pending: PerCpu::new(cpus, |_| Mutex::new(Pending::default())),
            buffers: Mutex::new(Vec::new()),
            hands: Hands::default(),
            limit: CachePadded::new(AtomicU64::new(limit)),
            unmovable: AtomicU64::new(0),
            cpus,
            unit: options.unit,
            seed,
            evict: options.evict,
            group: options.group,
            cold,
            codec,
            kept,
        };
        let (shared, swept) = (Arc::new(shared), Mutex::new(Swept::default()));
        let values = Values { own, shared, swept, lost: 0 };
        values.settle();
        Ok(values)
    }

    /// Stores a value, in place of the one that the key had. Every reader finds the old one or the
    /// new one, whole.
    ///
    /// # Errors
    /// [`PutError`]; the key has the value that it had, unless that was evicted.
    pub fn put(
        &self,
        at: At,
        key: &[u8],
        value: &[u8],
        options: PutOptions,
    ) -> Result<(), PutError> {
        if key.len() > MAX_KEY {
            return Err(PutError::KeyTooLong(key.len()));
        }
        if value.len() > MAX_VALUE {
            return Err(PutError::ValueTooLong(value.len()));
        }
        let expires = options.ttl.map_or(0, |ttl| at.now.saturating_add(ttl).max(1));
        let stored = self.put_whole(at, key, value, expires);
        let count = if stored.is_ok() { Count::Puts } else { Count::Refused };
        self.count(at.cpu, count, 1);
        stored
    }

    fn put_whole(&self, at: At, key: &[u8], value: &[u8], expires: u32) -> Result<(), PutError> {
        let fingerprint = self.fingerprint(key);
        self.own.index.prefetch(fingerprint);
        let mut attempt = 0;
        let head = loop {
            match self.make(at.cpu, Room::Open, key, value, expires) {
                Ok(head) => break head,
                Err(short) => self.make_room(at, short.bytes, attempt)?,
            }
            attempt += 1;
        };
        let word = Word::head(fingerprint, head, expires != 0);
        if self.publish(at.cpu, key, word, value.len()).is_err() {
            self.free_head(at.cpu, head);
            return Err(PutError::Full);
        }
        if self.groups_with(value.len()) {
            self.wait_for_group(at.cpu, word, key.len() + value.len());
        }
        Ok(())
    }

    /// Has a key name a value of so many bytes, in place of the one that it had. The calling thread
    /// is no reader. Fails if there is no room for the word.
    fn publish(&self, cpu: Cpu, key: &[u8], word: Word, value: usize) -> Result<(), ()> {
        let old = self.commit(cpu, key, word, key.len() + value)?;
        old.into_iter().for_each(|old| self.dispose(cpu, old));
        while self.own.index.grow(|left| self.retire_bucket(cpu, left)) {
            self.settle();
        }
        Ok(())
    }

    /// Swaps the word of a key, which names a value of `data` bytes with the key: the commit of a
    /// store.
    fn commit(
        &self,
        cpu: Cpu,
        key: &[u8],
        word: Word,
        data: usize,
    ) -> Result<Option<Displaced>, ()> {
        let writer = self.write(cpu);
        let _others = writer.lock_others(word.fingerprint());
        let mut chain = self.own.index.lock(word.fingerprint());
        let Some((slot, was)) = self.slot_of(&writer, cpu, &chain, key, word.fingerprint()) else {
            chain.insert(word).map_err(|_| ())?;
            self.count(cpu, Count::Data, data as i64);
            return Ok(None);
        };
        let old = chain.replace(slot, word, false);
        self.count(cpu, Count::Data, data as i64 - was as i64);
        Ok(old.map(|word| Displaced { word, data: was, was_last: writer.was_last(word) }))
    }

    /// The slot of a key in its chain, and the bytes of the key and its value.
    fn slot_of<'a>(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        chain: &Chain<'a>,
        key: &[u8],
        fingerprint: Fingerprint,
    ) -> Option<(&'a AtomicU64, usize)> {
        let mut data = 0;
        let slot =
            chain.find(fingerprint, |word| match self.head_if_of(reader, cpu, word, key) {
                Some(head) => {
                    data = head.data();
                    true
                }
                None => false,
            })?;
        Some((slot, data))
    }

    /// Reads the value of a key to the beginning of `into`, and returns its length; `None` if there
    /// is none. Takes no memory from the heap.
    ///
    /// # Errors
    /// [`GetError`]. If the buffer is too small, its contents are as before.
    pub fn get(&self, at: At, key: &[u8], into: &mut [u8]) -> Result<Option<usize>, GetError> {
        self.find(at, key, |values, found| {
            let length = found.head.value;
            let into = into.get_mut(..length).ok_or(GetError::TooSmall(length))?;
            values.read(found, 0, into).map(|()| length)
        })
    }

    /// The value of a key, as [`Values::get`] reads it, in memory of the heap.
    ///
    /// # Errors
    /// [`GetError::Corrupt`].
    pub fn get_vec(&self, at: At, key: &[u8]) -> Result<Option<Vec<u8>>, GetError> {
        self.find(at, key, |values, found| {
            let mut value = vec![0; found.head.value];
            values.read(found, 0, &mut value).map(|()| value)
        })
    }

    /// The values of several keys.
    ///
    /// # Errors
    /// The first error.
    pub fn get_vecs(&self, at: At, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, GetError> {
        keys.iter().for_each(|key| self.own.index.prefetch(self.fingerprint(key)));
        keys.iter().map(|key| self.get_vec(at, key)).collect()
    }

    /// Reads bytes `from..` of a value to `into`, and returns how many there were; `None` if there
    /// is no value. Reads only the units that they are in.
    ///
    /// # Errors
    /// [`GetError::Corrupt`].
    pub fn get_range(
        &self,
        at: At,
        key: &[u8],
        from: usize,
        into: &mut [u8],
    ) -> Result<Option<usize>, GetError> {
        self.find(at, key, |values, found| {
            let length = found.head.value.saturating_sub(from).min(into.len());
            values.read(found, from, &mut into[..length]).map(|()| length)
        })
    }

    /// The length of the value of a key; `None` if there is none.
    #[must_use]
    pub fn len_of(&self, at: At, key: &[u8]) -> Option<usize> {
        self.find(at, key, |_, found| Ok(found.head.value)).ok().flatten()
    }

    /// Whether there is a value of a key.
    #[must_use]
    pub fn contains(&self, at: At, key: &[u8]) -> bool {
        self.len_of(at, key).is_some()
    }

    /// Stores several values, as [`Values::put`] does. Returns how many were stored.
    ///
    /// # Errors
    /// The first [`PutError`], with the number of the key; those before it are stored.
    pub fn put_many(
        &self,
        at: At,
        values: &[(&[u8], &[u8])],
        options: PutOptions,
    ) -> Result<usize, (usize, PutError)> {
        values.iter().for_each(|(key, _)| self.own.index.prefetch(self.fingerprint(key)));
        for (number, (key, value)) in values.iter().enumerate() {
            self.put(at, key, value, options).map_err(|error| (number, error))?;
        }
        Ok(values.len())
    }

    /// Takes the value of a key out. Returns whether there was one.
    pub fn remove(&self, at: At, key: &[u8]) -> bool {
        let fingerprint = self.fingerprint(key);
        let mut is_over = false;
        let removed = {
            let writer = self.write(at.cpu);
            let _others = writer.lock_others(fingerprint);
            let mut chain = self.own.index.lock(fingerprint);
            let slot = chain.find(fingerprint, |word| {
                let head = self.head_if_of(&writer, at.cpu, word, key);
                is_over = head.is_some_and(|head| head.is_over(at.now));
                head.is_some()
            });
            let data = slot.and_then(|slot| {
                let word = Word::from_raw(slot.load(Ordering::Relaxed))?;
                Some(self.head_if_of(&writer, at.cpu, word, key)?.data())
            });
            slot.zip(data).and_then(|(slot, data)| {
                let word = chain.take(slot)?;
                self.count(at.cpu, Count::Data, -(data as i64));
                Some(Displaced { word, data, was_last: writer.was_last(word) })
            })
        };
        let Some(removed) = removed else { return false };
        self.dispose(at.cpu, removed);
        self.count(at.cpu, if is_over { Count::Expired } else { Count::Removes }, 1);
        !is_over
    }

    /// Takes all values out that are there when it is called, without a call to
    /// [`crate::Options::evicted`].
    pub fn clear(&self, at: At) {
        // A member may become a value of its own meanwhile, so the groups are first.
        for group in 1..self.groups.end() {
            self.take_apart(at, group, Apart::Clear);
        }
        let (mut place, mut words) = (0, Vec::new());
        while place < END {
            place = {
                let _reader = self.retired.read(at.cpu);
                self.own.index.scan(place, &mut words)
            };
            for word in words.drain(..) {
                let taken = self.take_word(at.cpu, word);
                taken.into_iter().for_each(|displaced| self.dispose(at.cpu, displaced));
            }
        }
        self.quiesce(at.cpu);
    }

    /// Limits the memory from now on; `None` for no limit. At a new limit below what there is, the
    /// next store makes room.
    ///
    /// # Errors
    /// [`NoStore`] for less than 1 MiB; nothing has changed then.
    pub fn set_limit(&self, limit: Option<u64>) -> Result<(), NoStore> {
        let limit = limit.unwrap_or(u64::MAX);
        judge_limit(limit)?;
        self.limit.store(limit, Ordering::Relaxed);
        self.settle();
        Ok(())
    }

    /// The statistics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let count = |count: Count| self.own.counts.sum(count as usize);
        let cold = |which: fn(&Cold) -> &AtomicU64| {
            self.cold.as_ref().map_or(0, |cold| which(cold).load(Ordering::Relaxed))
        };
        let pool_bytes = self.pool.frames() * PAGE_SIZE as u64;
        Stats {
            values: self.own.index.keys(),
            data_bytes: count(Count::Data),
            memory_bytes: pool_bytes + self.table_bytes(),
            pool_bytes,
            index_bytes: self.own.index.bytes(),
            limit_bytes: self.limit.load(Ordering::Relaxed),
            groups: self.groups.count(),
            hits: count(Count::Hits),
            misses: count(Count::Misses),
            puts: count(Count::Puts),
            removes: count(Count::Removes),
            evicted: count(Count::Evicted),
            expired: count(Count::Expired),
            refused: count(Count::Refused),
            recompressed: cold(|cold| &cold.recompressed),
            saved_bytes: cold(|cold| &cold.saved),
            lost: self.lost,
        }
    }

    /// Bytes of the indexes of all stores of the family, and of the table of groups.
    fn table_bytes(&self) -> u64 {
        let indexes = self.family.all();
        indexes.iter().map(|own| own.index.bytes()).sum::<u64>() + self.groups.bytes()
    }

    /// Gives the pool what the tables leave of the limit.
    fn settle(&self) {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == u64::MAX {
            return self.pool.set_limit(0);
        }
        let tables = self.table_bytes();
        let all = limit.saturating_sub(tables) / PAGE_SIZE as u64;
        let spare = (SPARE_FRAMES * self.cpus as u64).min(all / 16);
        self.pool.set_limits(Limits { stores: all - spare, all });
    }

    fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        Fingerprint::of(XxHash3_64::oneshot_with_seed(self.seed, key))
    }

    fn groups_with(&self, value: usize) -> bool {
        self.group && value <= SMALL
    }

    fn count(&self, cpu: Cpu, which: Count, amount: i64) {
        self.own.count(cpu, which, amount);
    }

    /// Takes a value out of this store if it is there still.
    fn take_word(&self, cpu: Cpu, word: Word) -> Option<Displaced> {
        let writer = self.write(cpu);
        // Read before the lock is taken: a group takes a while.
        let head = match self.own.index.find_word(word)?.place() {
            Place::Head(head) => self.head_of(&writer, head),
            Place::Member(..) => self.member_head(&writer, cpu, word)?,
        };
        let taken = self.take_out(&writer, word, head.data())?;
        self.count(cpu, Count::Data, -(head.data() as i64));
        Some(taken)
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        if self.stores().len() > 1 {
            self.leave_family();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.kept {
            self.pool.leave();
        }
    }
}

/// The keys that an index is made for: a value takes at least so many bytes with its part of it.
fn keys_of(memory: u64) -> u64 {
    memory / 24
}

/// The most groups.
fn groups_of(memory: u64) -> u64 {
    memory / 512
}

fn no_memory(error: NoMemory) -> NoStore {
    NoStore::NoMemory(format!("{error}"))
}

/// Judges a limit in bytes, before anything is made.
///
/// # Errors
/// [`NoStore::Invalid`] for less than 1 MiB.
pub fn judge_limit(limit: u64) -> Result<(), NoStore> {
    if limit < LEAST_LIMIT {
        let text = format!("a limit of {limit} bytes: {LEAST_LIMIT} at least are allowed");
        return Err(NoStore::Invalid(text));
    }
    Ok(())
}

/// A value that was found, for as long as the reader is there.
struct Found<'a> {
    reader: &'a Reader<'a>,
    cpu: Cpu,
    word: Word,
    head: Head,
}
