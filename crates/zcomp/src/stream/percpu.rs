//! `percpu`: the policy of one stream for each CPU.

use alloc::{boxed::Box, sync::Arc};

use sync::atomic::{AtomicUsize, Ordering};
use sync::{CachePadded, Mutex, MutexGuard};
use units::Cpu;

use super::{OneStream, Stream, Streams};
use crate::{CodecError, Compressor};

/// One stream per CPU, each behind a lock of its own.
///
/// A thread normally has its CPU's stream to itself. If another thread was preempted while using
/// it, the thread takes any free stream. If none is free, the thread waits for its own CPU's
/// stream.
pub struct PerCpuStreams {
    cpus: Box<[CachePadded<Mutex<Stream>>]>,
    /// The number of streams that are used.
    limit: AtomicUsize,
}

impl PerCpuStreams {
    /// Streams for `compressor` on `cpus` CPUs (at least one).
    ///
    /// # Errors
    /// [`CodecError`] when memory is out.
    pub fn new(compressor: &dyn Compressor, cpus: usize) -> Result<PerCpuStreams, CodecError> {
        let cpu = |_| Ok(CachePadded::new(Mutex::new(Stream::new(compressor)?)));
        let cpus: Box<[_]> = (0..cpus.max(1)).map(cpu).collect::<Result<_, CodecError>>()?;
        Ok(PerCpuStreams { limit: AtomicUsize::new(cpus.len()), cpus })
    }

    #[cold]
    fn get_elsewhere(&self, cpus: usize, own: usize) -> MutexGuard<'_, Stream> {
        let (before, from) = self.cpus[..cpus].split_at(own);
        from[1..]
            .iter()
            .chain(before)
            .find_map(|cpu| cpu.try_lock())
            .unwrap_or_else(|| from[0].lock())
    }
}

impl Streams for PerCpuStreams {
    const NAME: &'static str = "percpu";
    type Guard<'a> = MutexGuard<'a, Stream>;

    fn usual(cpus: usize) -> u32 {
        cpus.max(1) as u32
    }

    fn make(codec: &Arc<dyn Compressor>, cpus: usize, _: usize) -> Result<Self, CodecError> {
        PerCpuStreams::new(&**codec, cpus)
    }

    #[inline]
    fn get(&self, cpu: Cpu) -> MutexGuard<'_, Stream> {
        let (n, cpus) = (cpu.0 as usize, self.limit.load(Ordering::Relaxed));
        // A division takes as long as a lock, and is hardly ever needed.
        let own = if n < cpus { n } else { n % cpus };
        match self.cpus[own].try_lock() {
            Some(stream) => stream,
            None => self.get_elsewhere(cpus, own),
        }
    }

    fn count(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        self.limit.store(count.clamp(1, self.cpus.len()), Ordering::Relaxed);
        Ok(())
    }
}
