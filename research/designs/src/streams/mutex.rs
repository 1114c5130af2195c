//! `mutex`: one stream behind an ordinary mutex.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sync::CachePadded;
use units::Cpu;

use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

/// One stream behind the standard library's mutex, which no model checker knows. It exists for
/// measurements.
pub struct MutexStream {
    stream: CachePadded<Mutex<Stream>>,
}

impl MutexStream {
    /// Makes a stream for `compressor`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor) -> Result<MutexStream, CodecError> {
        let stream = CachePadded::new(Mutex::new(Stream::new(compressor)?));
        Ok(MutexStream { stream })
    }
}

impl Streams for MutexStream {
    const NAME: &'static str = "mutex";
    const MOST: u32 = 1;
    type Guard<'a> = MutexGuard<'a, Stream>;

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(codec: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
        MutexStream::new(&**codec)
    }

    #[inline]
    fn get(&self, _: Cpu) -> MutexGuard<'_, Stream> {
        // A panic of a holder does not spoil a stream.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        1
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        OneStream::judge(count)
    }
}
