//! `single`: one stream that all threads take in turns.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sync::CachePadded;
use units::Cpu;
use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

use super::multi::{LentStream, MultiStreams};
use crate::locks::{OwnerGuard, OwnerMutex};

/// One stream behind a mutex that spins on its owner before it sleeps, as in Linux 3.15 with
/// max_comp_streams 1: a compression ends sooner than a sleeping thread wakes.
pub struct SingleStream {
    stream: CachePadded<OwnerMutex<Stream>>,
}

impl SingleStream {
    /// Makes a stream for `compressor`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor) -> Result<SingleStream, CodecError> {
        let stream = CachePadded::new(OwnerMutex::new(Stream::new(compressor)?));
        Ok(SingleStream { stream })
    }
}

impl Streams for SingleStream {
    const NAME: &'static str = "single";
    const MOST: u32 = 1;
    type Guard<'a> = OwnerGuard<'a, Stream>;

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(codec: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
        SingleStream::new(&**codec)
    }

    #[inline]
    fn get(&self, cpu: Cpu) -> OwnerGuard<'_, Stream> {
        self.stream.lock(cpu)
    }

    fn count(&self) -> usize {
        1
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        OneStream::judge(count)
    }
}

/// The policy `single`, as Linux 3.15 chose it. With a first limit of one there is one stream for
/// ever; otherwise there are as many streams as the limit says.
pub enum SingleStreams {
    /// One.
    One(SingleStream),
    /// Up to the limit. It is boxed because it is larger than the other variant.
    Several(Box<MultiStreams>),
}

/// A stream of [`SingleStreams`].
pub enum Single<'a> {
    /// The only one.
    One(OwnerGuard<'a, Stream>),
    /// One of several.
    Several(LentStream<'a>),
}

impl Streams for SingleStreams {
    const NAME: &'static str = "single";
    type Guard<'a> = Single<'a>;

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(codec: &Arc<dyn Compressor>, cpus: usize, wanted: usize) -> Result<Self, CodecError> {
        match wanted {
            0..=1 => SingleStream::new(&**codec).map(SingleStreams::One),
            _ => MultiStreams::make(codec, cpus, wanted).map(Box::new).map(SingleStreams::Several),
        }
    }

    #[inline]
    fn get(&self, cpu: Cpu) -> Single<'_> {
        match self {
            SingleStreams::One(stream) => Single::One(stream.get(cpu)),
            SingleStreams::Several(streams) => Single::Several(streams.get(cpu)),
        }
    }

    fn count(&self) -> usize {
        match self {
            SingleStreams::One(stream) => stream.count(),
            SingleStreams::Several(streams) => streams.count(),
        }
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        match self {
            SingleStreams::One(stream) => stream.limit(count),
            SingleStreams::Several(streams) => streams.limit(count),
        }
    }
}

impl Deref for Single<'_> {
    type Target = Stream;
    #[inline]
    fn deref(&self) -> &Stream {
        match self {
            Single::One(stream) => stream,
            Single::Several(stream) => stream,
        }
    }
}

impl DerefMut for Single<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stream {
        match self {
            Single::One(stream) => stream,
            Single::Several(stream) => stream,
        }
    }
}
