//! `single` and `mutex`: one stream that all threads take in turns.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError};

use sync::{CachePadded, Mutex, MutexGuard};
use units::Cpu;
use zcomp::{CodecError, Compressor, OneStream, Stream, Streams};

/// Makes a policy of one stream behind a lock: the last words take it.
macro_rules! one_stream {
    ($(#[$doc:meta])* $policy:ident, $name:literal, $lock:ident, $guard:ident, $($take:tt)+) => {
        $(#[$doc])*
        pub struct $policy(CachePadded<$lock<Stream>>);

        impl Streams for $policy {
            const NAME: &'static str = $name;
            const MOST: u32 = 1;
            type Guard<'a> = $guard<'a, Stream>;

            fn usual(_: usize) -> u32 {
                1
            }

            fn make(codec: &Arc<dyn Compressor>, _: usize, _: usize) -> Result<Self, CodecError> {
                Ok($policy(CachePadded::new($lock::new(Stream::new(&**codec)?))))
            }

            #[inline]
            fn get(&self, _: Cpu) -> $guard<'_, Stream> {
                self.0.$($take)+
            }

            fn count(&self) -> usize {
                1
            }

            fn limit(&self, count: usize) -> Result<(), OneStream> {
                OneStream::judge(count)
            }
        }
    };
}

one_stream! {
    /// As Linux 3.15 chose it for a limit of one: behind a mutex that spins before it sleeps, for a
    /// compression often ends sooner than a sleeping thread wakes. Linux spins as long as the owner
    /// runs, which a program cannot know.
    SingleStream, "single", Mutex, MutexGuard, lock()
}

one_stream! {
    /// Behind the standard library's mutex, which no model checker knows. It exists for
    /// measurements. A panic of a holder does not spoil a stream.
    MutexStream, "mutex", StdMutex, StdMutexGuard, lock().unwrap_or_else(PoisonError::into_inner)
}
