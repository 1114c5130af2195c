//! Streams: a codec's context with its buffers, and the policy by which threads get one.

mod percpu;
mod policy;

use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::fmt;
use core::ops::{Deref, DerefMut};

use units::{Cpu, PAGE_SIZE, Page};

pub use percpu::PerCpuStreams;
pub use policy::{Policy, StreamsOf};

use crate::{CodecError, Compressor, Context};

/// `N` bytes on the heap, aligned to a page.
pub struct Buffer<const N: usize>(Box<[Aligned<N>]>);

#[repr(C, align(4096))]
#[derive(Clone)]
struct Aligned<const N: usize>([u8; N]);

impl<const N: usize> Buffer<N> {
    fn new(compressor: &str) -> Result<Buffer<N>, CodecError> {
        // One element. It is a vector because only a vector can fail to allocate without an abort.
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

/// The state that one thread at a time needs to compress and decompress. Its use never allocates
/// from the heap.
pub struct Stream {
    /// The codec's private state.
    pub context: Box<dyn Context>,
    /// The output of compression: two pages, so that no codec runs out of room.
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

    /// Compresses `page` to `output`, and returns the bytes there.
    #[inline]
    pub fn compress(&mut self, page: &Page) -> Option<&[u8]> {
        let length = self.context.compress(page, &mut *self.output)?;
        self.output.get(..length)
    }
}

/// The policy by which threads get a stream of one codec. Any number of threads may call it at
/// once. The product uses [`PerCpuStreams`].
///
/// It allocates nothing, or only when it grows within the administrator's limit. If there is no
/// memory to grow, it waits instead.
pub trait Streams: Sized + Send + Sync + 'static {
    /// The name of the policy.
    const NAME: &'static str;

    /// The most streams that may ever be used at once.
    const MOST: u32 = u32::MAX;

    /// The default number of streams that may be used at once on `cpus` CPUs.
    fn usual(cpus: usize) -> u32;

    /// Makes streams of `codec` on `cpus` CPUs, when `wanted` streams (at least one) are asked for.
    /// This number is no limit: see [`Streams::limit`].
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    fn make(codec: &Arc<dyn Compressor>, cpus: usize, wanted: usize) -> Result<Self, CodecError>;

    /// Holds a stream while it lives.
    type Guard<'a>: DerefMut<Target = Stream>
    where
        Self: 'a;

    /// Takes a stream for a thread on `cpu`; waits until one is free. A thread that holds a stream
    /// must not take another.
    fn get(&self, cpu: Cpu) -> Self::Guard<'_>;

    /// The number of streams, or the limit if that is lower.
    fn count(&self) -> usize;

    /// Lets at most `count` streams (at least one) be used at once from now on. Streams in use stay
    /// in use until they are returned.
    ///
    /// # Errors
    /// [`OneStream`]; nothing has changed then.
    fn limit(&self, count: usize) -> Result<(), OneStream>;
}

/// The error of a policy that has one stream and never makes another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneStream;

impl OneStream {
    /// Checks a limit for a policy of one stream.
    ///
    /// # Errors
    /// [`OneStream`] for a count above 1.
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
