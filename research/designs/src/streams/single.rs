//! `single`: one stream that all threads take in turns, as Linux 3.15 chose it for a limit of one.

use std::sync::Arc;

use sync::{CachePadded, Mutex, MutexGuard};
use units::Cpu;
use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

/// One stream behind a mutex that spins before it sleeps: a compression often ends sooner than a
/// sleeping thread wakes. Linux spins as long as the owner runs, which a program cannot know.
pub struct SingleStream(CachePadded<Mutex<Stream>>);

impl Streams for SingleStream {
    const NAME: &'static str = "single";
    const MOST: u32 = 1;
    type Guard<'a> = MutexGuard<'a, Stream>;

    fn usual(_: usize) -> u32 {
        1
    }

    fn make(codec: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
        Ok(SingleStream(CachePadded::new(Mutex::new(Stream::new(&**codec)?))))
    }

    #[inline]
    fn get(&self, _: Cpu) -> MutexGuard<'_, Stream> {
        self.0.lock()
    }

    fn count(&self) -> usize {
        1
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        OneStream::judge(count)
    }
}
