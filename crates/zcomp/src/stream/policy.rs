//! The policy that a store of pages has: the product's, or one that an experiment or a test brings.

use alloc::{boxed::Box, sync::Arc};

use units::Cpu;

use super::{OneStream, PerCpuStreams, Stream, Streams};
use crate::{CodecError, Compressor};

/// A policy of streams.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    most: u32,
    usual: fn(usize) -> u32,
    make: MakeStreams,
}

type MakeStreams = fn(&Arc<dyn Compressor>, usize, usize) -> Result<StreamsOf, CodecError>;

impl Policy {
    /// The product's.
    pub const PER_CPU: Policy = Policy {
        make: |codec, cpus, wanted| {
            let streams = PerCpuStreams::make(codec, cpus, wanted)?;
            Ok(StreamsOf(Either::PerCpu(streams)))
        },
        ..Policy::of::<PerCpuStreams>()
    };

    /// Any other.
    #[must_use]
    pub const fn of<S: Streams>() -> Policy {
        Policy {
            most: S::MOST,
            usual: S::usual,
            make: |codec, cpus, wanted| {
                let streams = S::make(codec, cpus, wanted)?;
                Ok(StreamsOf(Either::Other(Box::new(streams))))
            },
        }
    }

    /// [`Streams::MOST`].
    #[must_use]
    pub fn most(self) -> u32 {
        self.most
    }

    /// [`Streams::usual`].
    #[must_use]
    pub fn usual(self, cpus: usize) -> u32 {
        (self.usual)(cpus)
    }

    /// [`Streams::make`].
    ///
    /// # Errors
    /// As there.
    pub fn make(
        self,
        codec: &Arc<dyn Compressor>,
        cpus: usize,
        wanted: usize,
    ) -> Result<StreamsOf, CodecError> {
        (self.make)(codec, cpus, wanted)
    }
}

/// The streams of a codec. Who takes one of the product's reaches it without a pointer.
pub struct StreamsOf(Either);

enum Either {
    PerCpu(PerCpuStreams),
    Other(Box<dyn Behind>),
}

/// The methods of [`Streams`] that a pointer can have.
trait Behind: Send + Sync {
    fn with(&self, cpu: Cpu, work: &mut dyn FnMut(&mut Stream));
    fn count(&self) -> usize;
    fn limit(&self, count: usize) -> Result<(), OneStream>;
}

impl<S: Streams> Behind for S {
    fn with(&self, cpu: Cpu, work: &mut dyn FnMut(&mut Stream)) {
        work(&mut self.get(cpu));
    }
    fn count(&self) -> usize {
        S::count(self)
    }
    fn limit(&self, count: usize) -> Result<(), OneStream> {
        S::limit(self, count)
    }
}

impl StreamsOf {
    /// Takes a stream for a thread on `cpu`, as [`Streams::get`], until `work` returns.
    #[inline]
    pub fn with<R>(&self, cpu: Cpu, work: impl FnOnce(&mut Stream) -> R) -> R {
        match &self.0 {
            Either::PerCpu(streams) => work(&mut streams.get(cpu)),
            Either::Other(streams) => with_other(&**streams, cpu, work),
        }
    }

    /// [`Streams::count`].
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.0 {
            Either::PerCpu(streams) => Streams::count(streams),
            Either::Other(streams) => streams.count(),
        }
    }

    /// [`Streams::limit`].
    ///
    /// # Errors
    /// As there.
    pub fn limit(&self, count: usize) -> Result<(), OneStream> {
        match &self.0 {
            Either::PerCpu(streams) => Streams::limit(streams, count),
            Either::Other(streams) => streams.limit(count),
        }
    }
}

#[cold]
fn with_other<R>(streams: &dyn Behind, cpu: Cpu, work: impl FnOnce(&mut Stream) -> R) -> R {
    let (mut work, mut done) = (Some(work), None);
    streams.with(cpu, &mut |stream| done = work.take().map(|work| work(stream)));
    done.expect("a policy lends a stream to who takes one")
}
