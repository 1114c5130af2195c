//! The pool and its codecs: pages become objects, and objects become pages.
//!
//! # Why unsafe
//! The user of a pool promises which objects exist. For reads and frees the user is responsible.

use alloc::{format, sync::Arc};

use control::{ControlError, Errno};
use pagealloc::{Frames, MemoryProvider, NoMemory};
use sync::{Reader, ReaderEpochs};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Bank, Chosen, Corrupt, NotInstalled, Policy, Register, Stream};
use zsmalloc::{Handle, Pool, Room, StoreError};

use crate::Object;

/// Objects, and the codecs of the compressed ones. Any number of threads may call every method at
/// once. Readers are those that the store was made with.
pub struct Objects {
    pool: Pool,
    codecs: Bank,
}

impl Objects {
    /// Makes a store without objects and codecs, in `frames`, on `cpus` CPUs. A codec stays while
    /// one of `readers` may use it. At most `streams` streams of each codec may be used at once, at
    /// first.
    ///
    /// # Errors
    /// [`NoMemory`] when address space for the tables of the pool is out.
    pub fn new(
        provider: &dyn MemoryProvider,
        frames: Arc<dyn Frames>,
        readers: Arc<ReaderEpochs>,
        cpus: usize,
        streams: usize,
    ) -> Result<Objects, NoMemory> {
        let codecs = Bank::new(cpus, streams, readers);
        Ok(Objects { pool: Pool::new(provider, frames)?, codecs })
    }

    /// The store, with a register of its codecs: see [`Bank::registered`].
    #[must_use]
    pub fn registered(self, register: Option<Arc<dyn Register>>) -> Objects {
        Objects { codecs: self.codecs.registered(register), ..self }
    }

    /// The store, with another policy of streams for codecs that come.
    #[must_use]
    pub fn with_streams(self, policy: Policy) -> Objects {
        Objects { codecs: self.codecs.with_streams(policy), ..self }
    }

    /// The pool.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Leaves the objects to another process: a drop frees none from now on.
    pub fn leave(&mut self) {
        self.pool.leave();
    }

    /// The codecs.
    #[inline]
    #[must_use]
    pub fn codecs(&self) -> &Bank {
        &self.codecs
    }

    /// Makes `chosen` the codec of a priority, as [`Bank::install`]. The calling thread must not be
    /// a reader.
    ///
    /// # Errors
    /// `ENOMEM`, or `EBUSY` when present objects use too many codecs; nothing has changed then.
    pub fn install(
        &self,
        priority: u8,
        chosen: Chosen,
        in_use: impl FnOnce() -> u32,
    ) -> Result<(), ControlError> {
        self.codecs.install(priority, chosen, in_use).map_err(|error| {
            let errno = match error {
                NotInstalled::Codec(_) => Errno::ENOMEM,
                NotInstalled::Full => Errno::EBUSY,
            };
            ControlError::new(errno, format!("{error}"))
        })
    }

    /// Compresses a page on a stream of the CPU with the codec of a priority, and passes the result
    /// to `use_it`, which has the stream until it returns; `None` if there is no such codec.
    #[inline]
    pub fn compress<R>(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        priority: u8,
        page: &Page,
        use_it: impl FnOnce(Packed<'_>) -> R,
    ) -> Option<R> {
        let (number, codec) = self.codecs.current(reader, priority)?;
        zcomp::prefetch_sequel(page);
        Some(codec.streams.with(cpu, |stream| {
            let length = stream.context.compress(page, &mut stream.output[..]);
            let length = length.filter(|length| *length <= self.pool.raw_threshold());
            use_it(Packed { objects: self, cpu, page, stream, length, codec: number })
        }))
    }

    /// Stores the eight-byte pattern that fills a page. For `room` and `replacing` see
    /// [`Pool::store`].
    ///
    /// # Errors
    /// [`StoreError`]; the pool is unchanged.
    pub fn store_same_filled(
        &self,
        cpu: Cpu,
        room: Room,
        pattern: u64,
        replacing: Option<Object>,
    ) -> Result<Object, StoreError> {
        let replacing = replacing.map(Object::handle);
        self.pool.store(cpu, room, &pattern.to_ne_bytes(), replacing).map(Object::SameFilled)
    }

    /// Fills `page` with the contents of an object.
    ///
    /// # Errors
    /// [`Corrupt`]; the contents of `page` are undefined then.
    ///
    /// # Safety
    /// The object is in this store, and is not freed until this returns. The reader is one of the
    /// store's readers.
    #[inline]
    pub unsafe fn expand(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        object: Object,
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        // SAFETY: as the caller promises; the object has the length that its name gives.
        unsafe {
            self.pool.read(object.handle(), object.bytes(), |bytes| match object {
                Object::Compressed { codec, .. } => {
                    bytes.joined(|bytes| self.codecs.decompress(reader, cpu, codec, bytes, page))
                }
                Object::Huge(_) => {
                    bytes.copy_to(page);
                    Ok(())
                }
                Object::SameFilled(_) => {
                    let mut pattern = [0; 8];
                    bytes.copy_to(&mut pattern);
                    zcomp::fill(page, u64::from_ne_bytes(pattern));
                    Ok(())
                }
            })
        }
    }

    /// Fills `page` with page number `part` of an extent of `pages` pages.
    ///
    /// # Errors
    /// [`Corrupt`]; the contents of `page` are undefined then.
    ///
    /// # Safety
    /// As for [`Objects::expand`].
    pub unsafe fn decompress_part(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        object: Object,
        part: (usize, usize),
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        let Object::Compressed { handle, length, codec } = object else { return Err(Corrupt) };
        // SAFETY: as the caller promises; the object has the length that its name gives.
        unsafe {
            self.pool.read(handle, length, |bytes| {
                bytes.joined(|bytes| {
                    self.codecs.decompress_part(reader, cpu, codec, bytes, part, page)
                })
            })
        }
    }

    /// Stores compressed bytes as an object. For `room` and `replacing` see [`Pool::store`].
    ///
    /// # Errors
    /// [`StoreError`]; the pool is unchanged.
    pub fn store_packed(
        &self,
        cpu: Cpu,
        room: Room,
        Compressed { bytes, codec }: Compressed<'_>,
        replacing: Option<Object>,
    ) -> Result<Object, StoreError> {
        let handle = self.pool.store(cpu, room, bytes, replacing.map(Object::handle))?;
        Ok(Object::Compressed { handle, length: bytes.len(), codec })
    }

    /// Stores a page uncompressed.
    ///
    /// # Errors
    /// [`StoreError`]; the pool is unchanged.
    pub fn store_huge(&self, cpu: Cpu, room: Room, page: &Page) -> Result<Object, StoreError> {
        self.pool.store(cpu, room, page, None).map(Object::Huge)
    }

    /// Copies an object to the beginning of `into` without decompressing it.
    ///
    /// # Panics
    /// If the object does not fit.
    ///
    /// # Safety
    /// The object is in this store, and is not freed until this returns.
    pub unsafe fn copy_to(&self, object: Object, into: &mut [u8]) {
        // SAFETY: as the caller promises; the object has the length that its name gives.
        unsafe {
            self.pool.read(object.handle(), object.bytes(), |bytes| {
                bytes.copy_to(into);
            });
        }
    }

    /// Prefetches the memory that a free of the object touches.
    #[inline]
    pub fn prefetch(&self, object: Object) {
        self.pool.prefetch(object.handle());
    }

    /// Prefetches the first bytes of an object for [`Objects::expand`]. It may be freed by now.
    #[inline]
    pub fn prefetch_contents(&self, object: Object) {
        self.pool.prefetch_contents(object.handle(), object.bytes());
    }

    /// Frees an object.
    ///
    /// # Safety
    /// The object is in this store. No thread reads it now or later, or frees it again.
    #[inline]
    pub unsafe fn free(&self, cpu: Cpu, object: Object) {
        // SAFETY: as the caller promises.
        unsafe { self.pool.free(cpu, object.handle()) }
    }
}

/// The bytes of a compressed page, fewer than a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressed<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The number of their codec.
    pub codec: u8,
}

/// A compressed page, with the stream that holds its bytes.
pub struct Packed<'a> {
    objects: &'a Objects,
    cpu: Cpu,
    page: &'a Page,
    stream: &'a Stream,
    /// `None` if the page did not shrink.
    length: Option<usize>,
    codec: u8,
}

impl Packed<'_> {
    /// The size of the resulting object in bytes; a page if the page did not shrink.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.length.unwrap_or(PAGE_SIZE)
    }

    /// The compressed bytes; `None` if the page did not shrink.
    #[must_use]
    pub fn compressed(&self) -> Option<Compressed<'_>> {
        Some(Compressed { bytes: &self.stream.output[..self.length?], codec: self.codec })
    }

    /// Stores the bytes as an object. For `room` and `replacing` see
    /// [`Pool::store`].
    ///
    /// # Errors
    /// [`StoreError`]; the pool is unchanged.
    #[inline]
    pub fn store(&self, room: Room, replacing: Option<Object>) -> Result<Object, StoreError> {
        let replacing = replacing.map(Object::handle);
        let store = |bytes: &[u8]| -> Result<Handle, StoreError> {
            self.objects.pool.store(self.cpu, room, bytes, replacing)
        };
        match self.length {
            Some(length) => store(&self.stream.output[..length]).map(|handle| Object::Compressed {
                handle,
                length,
                codec: self.codec,
            }),
            None => store(self.page).map(Object::Huge),
        }
    }
}
