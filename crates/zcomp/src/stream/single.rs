//! `single`: one stream that everybody takes turns with.

use sync::{CachePadded, OwnerGuard, OwnerMutex};
use units::Cpu;

use super::{OneStream, Stream, Streams};
use crate::{CodecError, Compressor};

/// One stream behind a mutex that spins on its owner before it sleeps, as in Linux 3.15 with
/// max_comp_streams 1: a compression is over sooner than a sleeper could be woken.
pub struct SingleStream {
    stream: CachePadded<OwnerMutex<Stream>>,
}

impl SingleStream {
    /// The name of the policy.
    pub const NAME: &str = "single";

    /// A stream for `compressor`.
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor) -> Result<SingleStream, CodecError> {
        let stream = CachePadded::new(OwnerMutex::new(Stream::new(compressor)?));
        Ok(SingleStream { stream })
    }
}

impl Streams for SingleStream {
    type Guard<'a> = OwnerGuard<'a, Stream>;

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
