//! Streams: a codec's context with the buffers that go with it, and how threads come by one.

use alloc::{boxed::Box, format, vec::Vec};
use core::ops::{Deref, DerefMut};

use sync::atomic::{AtomicUsize, Ordering};
use sync::{CachePadded, Mutex, MutexGuard};
use units::{Lane, PAGE_SIZE, Page};

use crate::{CodecError, Compressor, Context};

/// `N` bytes on the heap, beginning on a page's boundary.
pub struct Buffer<const N: usize>(Box<[Aligned<N>]>);

#[repr(C, align(4096))]
#[derive(Clone)]
struct Aligned<const N: usize>([u8; N]);

impl<const N: usize> Buffer<N> {
    fn new(compressor: &str) -> Result<Buffer<N>, CodecError> {
        // One element; a vector because only that can be asked for without aborting when memory
        // is out.
        let mut items = Vec::new();
        items
            .try_reserve_exact(1)
            .map_err(|_| CodecError(format!("{compressor}: no memory for a stream's buffers")))?;
        items.push(Aligned([0; N]));
        Ok(Buffer(items.into_boxed_slice()))
    }
}

impl<const N: usize> Deref for Buffer<N> {
    type Target = [u8; N];
    #[inline]
    fn deref(&self) -> &[u8; N] {
        &self.0[0].0
    }
}

impl<const N: usize> DerefMut for Buffer<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8; N] {
        &mut self.0[0].0
    }
}

/// What one thread at a time needs to compress and decompress. Using it touches the heap no more.
pub struct Stream {
    /// The codec's private state.
    pub context: Box<dyn Context>,
    /// Where a page is compressed to: two pages, so that no codec runs out of room.
    pub output: Buffer<{ 2 * PAGE_SIZE }>,
}

impl Stream {
    /// A stream for `compressor`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor) -> Result<Stream, CodecError> {
        let name = compressor.name();
        Ok(Stream { context: compressor.context()?, output: Buffer::new(name)? })
    }

    /// Compresses `page` to `output`, and gives the bytes there.
    #[inline]
    pub fn compress(&mut self, page: &Page) -> Option<&[u8]> {
        let length = self.context.compress(page, &mut *self.output)?;
        self.output.get(..length)
    }
}

/// How threads come by a stream. Every thread may call it at any time.
///
/// It allocates nothing, or only when it grows at the administrator's wish.
pub trait Streams: Send + Sync {
    /// A stream for as long as this lives.
    type Guard<'a>: DerefMut<Target = Stream>
    where
        Self: 'a;

    /// A stream for a thread on `lane`; waits until there is one. A thread that holds one must not
    /// ask for another.
    fn get(&self, lane: Lane) -> Self::Guard<'_>;

    /// Streams there are now, or may be used at once if that is less.
    fn count(&self) -> usize;

    /// Lets at most `count` of them (at least one) be used at once from now on.
    fn limit(&self, count: usize);
}

/// One stream per lane, each behind a lock of its own.
///
/// A thread normally has its lane's stream to itself. If another thread was preempted while using
/// it, any stream that is free will do; only when none is does the thread wait for its own.
pub struct LaneStreams {
    lanes: Box<[CachePadded<Mutex<Stream>>]>,
    /// Only so many of them are used.
    limit: AtomicUsize,
}

impl LaneStreams {
    /// Streams for `compressor` on `lanes` lanes (at least one).
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor, lanes: usize) -> Result<LaneStreams, CodecError> {
        let lane = |_| Ok(CachePadded::new(Mutex::new(Stream::new(compressor)?)));
        let lanes: Box<[_]> = (0..lanes.max(1)).map(lane).collect::<Result<_, CodecError>>()?;
        Ok(LaneStreams { limit: AtomicUsize::new(lanes.len()), lanes })
    }

    #[cold]
    fn get_elsewhere(&self, lanes: usize, own: usize) -> MutexGuard<'_, Stream> {
        let (before, from) = self.lanes[..lanes].split_at(own);
        from[1..]
            .iter()
            .chain(before)
            .find_map(|lane| lane.try_lock())
            .unwrap_or_else(|| from[0].lock())
    }
}

impl Streams for LaneStreams {
    type Guard<'a> = MutexGuard<'a, Stream>;

    #[inline]
    fn get(&self, lane: Lane) -> MutexGuard<'_, Stream> {
        let (n, lanes) = (lane.0 as usize, self.limit.load(Ordering::Relaxed));
        // A division takes as long as a lock, and is hardly ever needed.
        let own = if n < lanes { n } else { n % lanes };
        match self.lanes[own].try_lock() {
            Some(stream) => stream,
            None => self.get_elsewhere(lanes, own),
        }
    }

    fn count(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn limit(&self, count: usize) {
        self.limit.store(count.clamp(1, self.lanes.len()), Ordering::Relaxed);
    }
}
