//! Streams: a codec's context with the buffers that go with it, and how threads come by one.

mod percpu;

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::fmt;
use core::ops::{Deref, DerefMut};

use units::{Cpu, PAGE_SIZE, Page};

pub use percpu::PerCpuStreams;

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

/// How threads come by a stream: the streams of one codec. Every thread may call it at any time.
/// [`PerCpuStreams`] is what the product uses.
///
/// It allocates nothing, or only when it grows within the administrator's limit; and if there is no
/// memory to grow, it waits instead.
pub trait Streams: Sized + Send + Sync + 'static {
    /// The name of the policy.
    const NAME: &'static str;

    /// The most streams that may ever be used at once.
    const MOST: u32 = u32::MAX;

    /// How many may be used at once on so many CPUs, when nobody chose a number.
    fn usual(cpus: usize) -> u32;

    /// Streams of `codec` on `cpus` CPUs, when `wanted` of them (at least one) are asked for. That
    /// is no limit: see [`Streams::limit`].
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    fn make(codec: &Arc<dyn Compressor>, cpus: usize, wanted: usize) -> Result<Self, CodecError>;

    /// A stream for as long as this lives.
    type Guard<'a>: DerefMut<Target = Stream>
    where
        Self: 'a;

    /// A stream for a thread on `cpu`; waits until there is one. A thread that holds one must not
    /// ask for another.
    fn get(&self, cpu: Cpu) -> Self::Guard<'_>;

    /// Streams there are now, or may be used at once if that is less.
    fn count(&self) -> usize;

    /// Lets at most `count` of them (at least one) be used at once from now on. Streams that are
    /// taken stay so until they come back.
    ///
    /// # Errors
    /// [`OneStream`], and nothing has changed.
    fn limit(&self, count: usize) -> Result<(), OneStream>;
}

/// There is one stream, and there will never be another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneStream;

impl OneStream {
    /// What a policy of one stream says to being limited.
    ///
    /// # Errors
    /// Itself, for more than one.
    pub fn judge(count: usize) -> Result<(), OneStream> {
        if count <= 1 { Ok(()) } else { Err(OneStream) }
    }
}

impl fmt::Display for OneStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is one stream, and there will never be another")
    }
}

impl core::error::Error for OneStream {}
