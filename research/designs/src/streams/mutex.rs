//! `mutex`: one stream behind an ordinary mutex.

use std::sync::Arc;

use sync::CachePadded;
use units::Cpu;

use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

use crate::locks::{SystemGuard, SystemMutex};

/// One stream behind the standard library's mutex. It exists for measurements: [`SingleStream`]
/// must never be slower than it.
///
/// [`SingleStream`]: super::SingleStream
pub struct MutexStream {
    stream: CachePadded<SystemMutex<Stream>>,
}

impl MutexStream {
    /// Makes a stream for `compressor`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor) -> Result<MutexStream, CodecError> {
        let stream = CachePadded::new(SystemMutex::new(Stream::new(compressor)?));
        Ok(MutexStream { stream })
    }
}

impl Streams for MutexStream {
    const NAME: &'static str = "mutex";
    const MOST: u32 = 1;
    type Guard<'a> = SystemGuard<'a, Stream>;

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(codec: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
        MutexStream::new(&**codec)
    }

    #[inline]
    fn get(&self, _: Cpu) -> SystemGuard<'_, Stream> {
        self.stream.lock()
    }

    fn count(&self) -> usize {
        1
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        OneStream::judge(count)
    }
}
