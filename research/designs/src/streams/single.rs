//! `single`: one stream that all threads take in turns.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sync::{CachePadded, Mutex, MutexGuard};
use units::Cpu;
use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

use super::multi::{LentStream, MultiStreams};

/// The policy `single`, as Linux 3.15 chose it. With a first limit of one there is one stream for
/// ever; otherwise there are as many streams as the limit says.
pub enum SingleStreams {
    /// One, behind a mutex that spins before it sleeps: a compression often ends sooner than a
    /// sleeping thread wakes. Linux spins as long as the owner runs, which a program cannot know.
    One(CachePadded<Mutex<Stream>>),
    /// Up to the limit. It is boxed because it is larger than the other variant.
    Several(Box<MultiStreams>),
}

/// A stream of [`SingleStreams`].
pub enum Single<'a> {
    /// The only one.
    One(MutexGuard<'a, Stream>),
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
            0..=1 => {
                let stream = Mutex::new(Stream::new(&**codec)?);
                Ok(SingleStreams::One(CachePadded::new(stream)))
            }
            _ => MultiStreams::make(codec, cpus, wanted).map(Box::new).map(SingleStreams::Several),
        }
    }

    #[inline]
    fn get(&self, cpu: Cpu) -> Single<'_> {
        match self {
            SingleStreams::One(stream) => Single::One(stream.lock()),
            SingleStreams::Several(streams) => Single::Several(streams.get(cpu)),
        }
    }

    fn count(&self) -> usize {
        match self {
            SingleStreams::One(_) => 1,
            SingleStreams::Several(streams) => streams.count(),
        }
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        match self {
            SingleStreams::One(_) => OneStream::judge(count),
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
