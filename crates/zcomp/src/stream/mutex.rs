//! `mutex`: one stream behind an ordinary mutex.

use sync::{CachePadded, SystemGuard, SystemMutex};
use units::Cpu;

use super::{OneStream, Stream, Streams};
use crate::{CodecError, Compressor};

/// One stream behind the standard library's mutex. It is there to be measured, as what
/// [`SingleStream`] must never fall below; nothing else recommends it.
///
/// [`SingleStream`]: super::SingleStream
pub struct MutexStream {
    stream: CachePadded<SystemMutex<Stream>>,
}

impl MutexStream {
    /// The name of the policy.
    pub const NAME: &str = "mutex";

    /// A stream for `compressor`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor) -> Result<MutexStream, CodecError> {
        let stream = CachePadded::new(SystemMutex::new(Stream::new(compressor)?));
        Ok(MutexStream { stream })
    }
}

impl Streams for MutexStream {
    type Guard<'a> = SystemGuard<'a, Stream>;

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
