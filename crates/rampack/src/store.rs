//! A store of values by keys.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use values::{
    At, Cursor, Evicted, GetError, NoStore, Parts, PutError, PutOptions, Recompress, Tell, Values,
};

use crate::held::Held;
use crate::kept;
use crate::upkeep::Inner;
use crate::{Algorithm, Error};

/// The options of a [`Store`].
#[non_exhaustive]
pub struct StoreOptions {
    algorithm: Algorithm,
    limit: Option<u64>,
    unit: usize,
    evict: bool,
    group: bool,
    on_evict: Option<Box<Tell>>,
    keep: Option<PathBuf>,
    recompress: Option<(Algorithm, Duration)>,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            algorithm: Algorithm::default(),
            limit: None,
            unit: 16 << 10,
            evict: true,
            group: true,
            on_evict: None,
            keep: None,
            recompress: None,
        }
    }
}

impl StoreOptions {
    /// All defaults: no limit but that of [`Builder::memory`](crate::Builder::memory).
    #[must_use]
    pub fn new() -> StoreOptions {
        StoreOptions::default()
    }

    /// How values are compressed: with lz4, lz4hc, zstd or deflate.
    #[must_use]
    pub fn algorithm(self, algorithm: Algorithm) -> StoreOptions {
        StoreOptions { algorithm, ..self }
    }

    /// The most bytes of memory, 1 MiB at least, with the index, and with what clones take.
    #[must_use]
    pub fn limit(self, bytes: u64) -> StoreOptions {
        StoreOptions { limit: Some(bytes), ..self }
    }

    /// Values are cut in units of so many bytes, 4, 8, 16 (the default), 32 or 64 KiB, which are
    /// compressed one by one. Larger ones take less memory; a small part of a value is read faster
    /// if they are smaller.
    #[must_use]
    pub fn unit(self, bytes: usize) -> StoreOptions {
        StoreOptions { unit: bytes, ..self }
    }

    /// Whether values go when memory is short, those first that were not read lately. It is so
    /// unless it is turned off: then a put fails with [`Error::Full`].
    #[must_use]
    pub fn evict(self, evict: bool) -> StoreOptions {
        StoreOptions { evict, ..self }
    }

    /// Whether values of up to 1 KiB are compressed together. It is so unless it is turned off.
    /// Together they take half of the memory or less, and each read takes some microseconds.
    #[must_use]
    pub fn group(self, group: bool) -> StoreOptions {
        StoreOptions { group, ..self }
    }

    /// Upkeep compresses values that were not read for so long (it may take twice as long) once
    /// more: with lz4hc, zstd or deflate. They take less memory from then on, and their reads more
    /// time, until they are stored again. Values that are compressed together are so together, when
    /// most of them were not read. [`StoreStats::saved_bytes`] tells what it is worth.
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::Error> {
    /// use std::time::Duration;
    ///
    /// use rampack::{Algorithm, Rampack, StoreOptions};
    ///
    /// # #[cfg(all(any(feature = "lz4", feature = "lz4-rust"), feature = "zstd"))] {
    /// let options = StoreOptions::new().recompress(Algorithm::ZSTD, Duration::from_secs(60));
    /// let store = Rampack::new()?.store(options)?;
    /// store.put("old", "text ".repeat(1000))?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn recompress(self, algorithm: Algorithm, idle: Duration) -> StoreOptions {
        StoreOptions { recompress: Some((algorithm, idle)), ..self }
    }

    /// Is called with each value that left by itself, when nobody finds it any more: by the thread
    /// that stored another one, or that does upkeep. It may use the store, but must not put a value
    /// into it, nor be the last to drop it.
    #[must_use]
    pub fn on_evict(self, call: impl Fn(&Left<'_>) + Send + Sync + 'static) -> StoreOptions {
        let tell = move |evicted: &Evicted<'_>| call(&Left(evicted));
        StoreOptions { on_evict: Some(Box::new(tell)), ..self }
    }

    /// Keeps all values in files of a directory, which is made if it is not there, so that they
    /// outlive the process. It may be killed at any instant: the next one that makes a store of the
    /// same directory finds every value whose put had returned, and of a put under way the old
    /// value or the new one. One process at a time has the store. The algorithms (not their levels)
    /// and the unit must be those of the first time; the other options may change.
    ///
    /// A directory in `/dev/shm`, or of another tmpfs, is memory, and ends with the system. On a
    /// disk the store also comes back after a reboot, if it was dropped before; one that the end of
    /// the system cut off is refused, and one that its disk did not take whole. The lives of its
    /// values go by the time of day, also while no process has it. A put fails for want of room
    /// within the limit. The file system must have room for it, and for 1/32 more and 2.3 MiB for
    /// each CPU and 5 MiB; by default the limit is what leaves these. If others fill the file
    /// system up, the process ends (SIGBUS).
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::Error> {
    /// use rampack::{Rampack, StoreOptions};
    ///
    /// # #[cfg(any(feature = "lz4", feature = "lz4-rust"))] {
    /// # let directory = format!("/dev/shm/rampack-example-{}", std::process::id());
    /// # let rampack = Rampack::builder().memory(64 << 20).build()?;
    /// let options = || StoreOptions::new().limit(4 << 20).keep(&directory);
    /// let store = rampack.store(options())?;
    /// store.put("user:7", "any bytes")?;
    /// drop(store);
    /// // In this process or in another one, however this one ended.
    /// let store = rampack.store(options())?;
    /// assert_eq!(store.get("user:7")?.as_deref(), Some(&b"any bytes"[..]));
    /// # drop(store);
    /// # std::fs::remove_dir_all(directory).expect("it is there");
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keep(self, directory: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions { keep: Some(directory.into()), ..self }
    }
}

/// A value that left a [`Store`] by itself.
pub struct Left<'a>(&'a Evicted<'a>);

/// Why a value left a [`Store`] by itself.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its memory was needed.
    Evicted,
    /// Its life ended.
    Expired,
}

impl Left<'_> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Why it left.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self.0.reason() {
            values::Reason::Expired => Reason::Expired,
            _ => Reason::Evicted,
        }
    }

    /// The value.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn value(&self) -> Result<Vec<u8>, Error> {
        let mut value = vec![0; self.0.value_len()];
        self.0.read(&mut value)?;
        Ok(value)
    }
}

/// What a [`Store`] has and takes.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StoreStats {
    /// Values.
    pub values: u64,
    /// Bytes of their keys and values.
    pub data_bytes: u64,
    /// Bytes of memory that they take, tables among them; with the values of clones, and of what
    /// it is a clone of.
    pub memory_bytes: u64,
    /// Reads that found a value, and those that found none.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Values stored so far.
    pub puts: u64,
    /// Values that went because memory was needed, so far.
    pub evicted: u64,
    /// Values whose lives ended, so far.
    pub expired: u64,
    /// Values, and groups of small ones, that were compressed once more, so far; in clones, too.
    pub recompressed: u64,
    /// Bytes of memory that this has saved, so far.
    pub saved_bytes: u64,
    /// Values of a store that is kept that were lost: what another process left of them was
    /// damaged.
    pub lost: u64,
}

/// Values by keys, compressed in memory. Keys have up to 1 KiB, values up to 16 MiB. Clones are the
/// same store; it ends with the last. Any number of threads may call every method: reads take no
/// lock that a writer holds, and find the old value or the new one, whole.
#[derive(Clone)]
pub struct Store {
    values: Arc<Held>,
    /// What a user of a store that is kept has. Goes after the values: see `kept`.
    _user: Option<Arc<()>>,
    /// What its memory is a part of.
    inner: Arc<Inner>,
}

impl Store {
    pub(crate) fn create(inner: &Arc<Inner>, options: StoreOptions) -> Result<Store, Error> {
        let StoreOptions { algorithm, limit, unit, evict, group, on_evict, keep, recompress } =
            options;
        let open = |algorithm: Algorithm| {
            let codec = zcomp::open(algorithm.name(), &algorithm.params());
            codec.map_err(|error| Error::Invalid(Cow::Owned(error.0)))
        };
        let codec = open(algorithm)?;
        let mut names = Cow::Borrowed(algorithm.name());
        let recompress = match recompress {
            None => None,
            Some((second, idle)) => {
                names = format!("{names}, then {}", second.name()).into();
                let after = seconds(idle).unwrap_or(u32::MAX);
                Some(Recompress { codec: open(second)?, after })
            }
        };
        let seed = RandomState::new().hash_one(unit);
        let parts = |frames, seed, limit| Parts {
            frames,
            cpus: host::cpus(),
            codec,
            seed,
            options: values::Options { limit, unit, evict, group, recompress, evicted: on_evict },
        };
        let (values, kept, user) = match keep {
            None => {
                let frames = inner.machine.frames().clone();
                (Values::new(&host::Mmap, parts(frames, seed, limit))?, None, None)
            }
            Some(path) => {
                let told = (unit, &*names, seed);
                let (values, kept, user) = kept::open(&path, inner.limit(), parts, told, limit)?;
                (values, Some(kept), Some(user))
            }
        };
        let values = Arc::new(Held::new(values, kept));
        inner.keep_up(&values);
        Ok(Store { values, _user: user, inner: inner.clone() })
    }

    /// Makes a clone: another store with the values that this one has at an instant within this
    /// call. Reads go on meanwhile; puts and removals wait until the index is copied. It takes
    /// about 13 bytes for each value, and all memory of values is shared, until one of the two has
    /// another value or none. ([`Clone`] gives the same store once more.)
    ///
    /// The clone has the options of this store, but [`StoreOptions::on_evict`]. The limit is one
    /// for all that share: what they share counts once, and [`Store::set_limit`] of each sets it.
    /// At the limit, values go that were not read lately in any of them, and are gone from all that
    /// share them. Up to 254 clones are there at once; clones can be cloned.
    ///
    /// ```
    /// # fn main() -> Result<(), rampack::Error> {
    /// use rampack::{Rampack, StoreOptions};
    ///
    /// # #[cfg(any(feature = "lz4", feature = "lz4-rust"))] {
    /// let store = Rampack::new()?.store(StoreOptions::new())?;
    /// store.put("user:7", "before")?;
    /// let then = store.clone_contents()?;
    /// store.put("user:7", "after")?;
    /// assert_eq!(then.get("user:7")?.as_deref(), Some(&b"before"[..]));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a store that is kept ([`StoreOptions::keep`]), and for more
    /// clones; [`Error::NoMemory`].
    pub fn clone_contents(&self) -> Result<Store, Error> {
        let values = self.values.clone_contents(&host::Mmap).map_err(|error| match error {
            NoStore::Invalid(message) => Error::Unsupported(Cow::Owned(message)),
            other => other.into(),
        })?;
        let values = Arc::new(Held::new(values, None));
        self.inner.keep_up(&values);
        Ok(Store { values, _user: None, inner: self.inner.clone() })
    }

    /// Stores a value, in place of the one that the key had.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key or a value that is too long; [`Error::Full`] when there is no
    /// room. The key has the value that it had, unless that was evicted.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let options = PutOptions::default();
        Ok(self.values.put(self.here(), key.as_ref(), value.as_ref(), options)?)
    }

    /// Stores a value that is not found any more after `ttl`, rounded up to seconds. It may go up
    /// to a second earlier: the clock of lives has whole seconds.
    ///
    /// # Errors
    /// As for [`Store::put`].
    pub fn put_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<(), Error> {
        let options = PutOptions { ttl: seconds(ttl) };
        Ok(self.values.put(self.here(), key.as_ref(), value.as_ref(), options)?)
    }

    /// Stores several values, as [`Store::put`] does.
    ///
    /// # Errors
    /// The first error; the values before it are stored.
    pub fn put_many(&self, values: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let put = self.values.put_many(self.here(), values, PutOptions::default());
        put.map(|_| ()).map_err(|(_, error)| error.into())
    }

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.values.get_vec(self.here(), key.as_ref())?)
    }

    /// The values of several keys.
    ///
    /// # Errors
    /// The first error.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(self.values.get_vecs(self.here(), keys)?)
    }

    /// Reads the value of a key to the beginning of `into`, and returns its length; `None` if there
    /// is none. Takes no memory from the heap.
    ///
    /// # Errors
    /// [`Error::TooSmall`] with the length of the value; `into` is as it was then.
    /// [`Error::Corrupt`].
    #[inline]
    pub fn get_into(&self, key: impl AsRef<[u8]>, into: &mut [u8]) -> Result<Option<usize>, Error> {
        Ok(self.values.get(self.here(), key.as_ref(), into)?)
    }

    /// Reads bytes `from..` of a value to `into`, and returns how many there were; `None` if there
    /// is no value. Decompresses only the units that they are in.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn get_range(
        &self,
        key: impl AsRef<[u8]>,
        from: usize,
        into: &mut [u8],
    ) -> Result<Option<usize>, Error> {
        Ok(self.values.get_range(self.here(), key.as_ref(), from, into)?)
    }

    /// The length of the value of a key; `None` if there is none.
    #[must_use]
    pub fn len_of(&self, key: impl AsRef<[u8]>) -> Option<usize> {
        self.values.len_of(self.here(), key.as_ref())
    }

    /// Whether there is a value of a key.
    #[must_use]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.len_of(key).is_some()
    }

    /// Takes the value of a key out. Returns whether there was one.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.values.remove(self.here(), key.as_ref())
    }

    pub(crate) fn here(&self) -> At {
        self.values.here()
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Takes all values out.
    pub fn clear(&self) {
        self.values.clear(self.here());
    }

    /// All keys, in no order, each with the length of its value. Values may come and go meanwhile:
    /// a key that is there all the time is seen once.
    #[must_use]
    pub fn keys(&self) -> Keys<'_> {
        Keys { store: self, next: Some(Cursor::default()), some: Vec::new().into_iter() }
    }

    /// Moves what is stored together, so that it needs less memory. It takes time in proportion to
    /// what is stored. Returns the bytes that the store needs less.
    pub fn compact(&self) -> u64 {
        self.values.compact(host::cpu()) * units::PAGE_SIZE as u64
    }

    /// Limits its memory, with that of its clones, to so many bytes from now on. At a limit below
    /// what it takes, the next put makes room.
    ///
    /// # Errors
    /// [`Error::Invalid`] for less than 1 MiB, and for more than the file system of a store that is
    /// kept has room for, if it is more than now; nothing has changed then.
    pub fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        // Less is right also where others have filled the file system up.
        if bytes > self.values.stats().limit_bytes {
            self.values.judge_limit(bytes)?;
        }
        Ok(self.values.set_limit(Some(bytes))?)
    }

    /// The statistics now.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let stats = self.values.stats();
        StoreStats {
            values: stats.values,
            data_bytes: stats.data_bytes,
            memory_bytes: stats.memory_bytes,
            hits: stats.hits,
            misses: stats.misses,
            puts: stats.puts,
            evicted: stats.evicted,
            expired: stats.expired,
            recompressed: stats.recompressed,
            saved_bytes: stats.saved_bytes,
            lost: stats.lost,
        }
    }
}

/// A time in seconds, rounded up; `None` for one that is too long.
fn seconds(time: Duration) -> Option<u32> {
    u32::try_from(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))).ok()
}

/// The keys of a [`Store`]: see [`Store::keys`].
pub struct Keys<'a> {
    store: &'a Store,
    next: Option<Cursor>,
    some: vec::IntoIter<(Vec<u8>, usize)>,
}

impl Iterator for Keys<'_> {
    type Item = (Vec<u8>, usize);

    fn next(&mut self) -> Option<(Vec<u8>, usize)> {
        loop {
            if let Some(key) = self.some.next() {
                return Some(key);
            }
            let mut some = Vec::new();
            let see = |key: &[u8], length| some.push((key.to_vec(), length));
            self.next = self.store.values.keys(self.store.here(), self.next?, see);
            self.some = some.into_iter();
        }
    }
}

impl From<PutError> for Error {
    #[cold]
    fn from(error: PutError) -> Error {
        match error {
            PutError::Full => Error::Full,
            other => Error::Invalid(Cow::Owned(other.to_string())),
        }
    }
}

impl From<GetError> for Error {
    #[cold]
    fn from(error: GetError) -> Error {
        match error {
            GetError::TooSmall(bytes) => Error::TooSmall(bytes),
            _ => Error::Corrupt,
        }
    }
}

impl From<NoStore> for Error {
    #[cold]
    fn from(error: NoStore) -> Error {
        match error {
            NoStore::Invalid(message) | NoStore::Left(message) => {
                Error::Invalid(Cow::Owned(message))
            }
            NoStore::NoMemory(message) => Error::NoMemory(Cow::Owned(message)),
        }
    }
}
