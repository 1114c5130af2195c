//! The pool and its codecs: pages become objects, and objects become pages.
//!
//! # Why unsafe
//! A pool is told by its user which objects are there and who reads them. Storing is safe here,
//! for it is seen that the reader is one of the pool's. Reading and freeing are for the user to
//! answer for.

use alloc::{format, sync::Arc};

use control::{ControlError, Errno};
use pagealloc::{MemoryProvider, NoMemory};
use sync::{Reader, ReaderEpochs};
use units::{Cpu, PAGE_SIZE, Page};
use zcomp::{Bank, Chosen, Corrupt, NotInstalled, Streams};
use zsmalloc::{Handle, Pool, PoolOptions, StoreError};

use crate::Object;

/// Objects, and the codecs of those that are compressed. Every method may be called by any number
/// of threads at once; readers are those that the pool was made with.
pub struct Objects<S> {
    pool: Pool,
    codecs: Bank<S>,
    readers: Arc<ReaderEpochs>,
}

impl<S: Streams> Objects<S> {
    /// No objects and no codecs, on `cpus` CPUs. At most `streams` streams of each codec may be
    /// used at once, at first.
    ///
    /// # Errors
    /// [`NoMemory`] when there are no addresses for the tables of the pool.
    pub fn new(
        provider: &dyn MemoryProvider,
        pool: PoolOptions,
        cpus: usize,
        streams: usize,
    ) -> Result<Objects<S>, NoMemory> {
        let readers = pool.readers.clone();
        let codecs = Bank::new(cpus, streams, readers.clone());
        Ok(Objects { pool: Pool::new(provider, pool)?, codecs, readers })
    }

    /// The same, but that compaction waits for no reader: a checker of races must find that.
    #[cfg(any(shuttle, asan))]
    #[must_use]
    pub fn without_readers(self) -> Objects<S> {
        Objects { pool: self.pool.without_readers(), ..self }
    }

    /// The pool.
    #[inline]
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The codecs.
    #[inline]
    #[must_use]
    pub fn codecs(&self) -> &Bank<S> {
        &self.codecs
    }

    /// Makes `chosen` the codec of a priority, as [`Bank::install`]. The calling thread must not be
    /// a reader.
    ///
    /// # Errors
    /// `ENOMEM`, or `EBUSY` when objects of too many codecs are there; nothing has changed then.
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

    /// Compresses a page on a stream of the CPU's with the codec of a priority; nothing where there
    /// is no such codec.
    #[inline]
    pub fn compress<'a>(
        &'a self,
        reader: &'a Reader<'a>,
        cpu: Cpu,
        priority: u8,
        page: &'a Page,
    ) -> Option<Packed<'a, S>> {
        let (number, codec) = self.codecs.current(reader, priority)?;
        zcomp::prefetch_sequel(page);
        let mut stream = codec.streams.get(cpu);
        let length = {
            let stream = &mut *stream;
            stream.context.compress(page, &mut stream.output[..])
        };
        let length = length.filter(|length| *length <= self.pool.raw_threshold());
        Some(Packed { objects: self, reader, cpu, page, stream, length, codec: number })
    }

    /// Stores the eight bytes that a page is over and over. As to `replacing`, see [`Pool::store`].
    ///
    /// # Errors
    /// [`StoreError`]; the pool is as it was.
    ///
    /// # Panics
    /// If the reader is another's.
    pub fn store_same_filled(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        pattern: u64,
        replacing: Option<Object>,
    ) -> Result<Object, StoreError> {
        assert!(reader.is_of(&self.readers), "objects are stored by their own readers");
        let replacing = replacing.map(Object::handle);
        // SAFETY: it is one of the pool's readers, as just seen.
        unsafe { self.pool.store(reader, cpu, &pattern.to_ne_bytes(), replacing) }
            .map(Object::SameFilled)
    }

    /// Fills `page` with what an object stands for.
    ///
    /// # Errors
    /// [`Corrupt`]; `page` is undefined then.
    ///
    /// # Safety
    /// The object is one of these, and is there until this returns. The reader is one of theirs.
    #[inline]
    pub unsafe fn expand(
        &self,
        reader: &Reader<'_>,
        cpu: Cpu,
        object: Object,
        page: &mut Page,
    ) -> Result<(), Corrupt> {
        // SAFETY: as the caller promises; it is as long as it says.
        unsafe {
            self.pool.read(reader, object.handle(), object.bytes(), |bytes| match object {
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

    /// Copies an object as it is to the beginning of `into`.
    ///
    /// # Panics
    /// If it does not fit.
    ///
    /// # Safety
    /// As of [`Objects::expand`].
    pub unsafe fn copy_to(&self, reader: &Reader<'_>, object: Object, into: &mut [u8]) {
        // SAFETY: as the caller promises; it is as long as it says.
        unsafe {
            self.pool.read(reader, object.handle(), object.bytes(), |bytes| {
                bytes.copy_to(into);
            });
        }
    }

    /// Asks the processor for what freeing an object will touch.
    #[inline]
    pub fn prefetch(&self, object: Object) {
        self.pool.prefetch(object.handle());
    }

    /// Frees an object.
    ///
    /// # Safety
    /// The object is one of these and there; nobody reads it now or later, or frees it again.
    #[inline]
    pub unsafe fn free(&self, cpu: Cpu, object: Object) {
        // SAFETY: as the caller promises.
        unsafe { self.pool.free(cpu, object.handle()) }
    }
}

/// A page that was compressed, with the stream it lies in.
pub struct Packed<'a, S: Streams> {
    objects: &'a Objects<S>,
    reader: &'a Reader<'a>,
    cpu: Cpu,
    page: &'a Page,
    stream: S::Guard<'a>,
    /// None where it would not shrink.
    length: Option<usize>,
    codec: u8,
}

impl<S: Streams> Packed<'_, S> {
    /// Bytes of the object that it would be; a page of them where it would not shrink.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.length.unwrap_or(PAGE_SIZE)
    }

    /// Makes an object of it, and lets go of the stream. As to `replacing`, see [`Pool::store`].
    ///
    /// # Errors
    /// [`StoreError`]; the pool is as it was.
    #[inline]
    pub fn store(self, replacing: Option<Object>) -> Result<Object, StoreError> {
        let replacing = replacing.map(Object::handle);
        let store = |bytes: &[u8]| -> Result<Handle, StoreError> {
            // SAFETY: a codec was found with this reader, so it is one of those that the codecs and
            // the pool were made with.
            unsafe { self.objects.pool.store(self.reader, self.cpu, bytes, replacing) }
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
