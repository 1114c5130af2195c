//! Any of the policies: what an engine has, so that there need not be one engine for each.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

use sync::{MutexGuard, OwnerGuard, SystemGuard};
use units::Cpu;

use super::{
    LentStream, MultiStreams, MutexStream, OneStream, PerCpuStreams, SingleStream, Stream, Streams,
};

/// Streams under one policy or another.
pub enum AnyStreams {
    /// `percpu`.
    Cpus(PerCpuStreams),
    /// `single`.
    Single(SingleStream),
    /// `multi`. It is larger than the others.
    Multi(Box<MultiStreams>),
    /// `mutex`.
    Mutex(MutexStream),
}

/// A stream of [`AnyStreams`].
pub enum AnyStream<'a> {
    /// Of a CPU.
    Cpu(MutexGuard<'a, Stream>),
    /// The only one.
    Single(OwnerGuard<'a, Stream>),
    /// Lent.
    Multi(LentStream<'a>),
    /// The only one.
    Mutex(SystemGuard<'a, Stream>),
}

impl Streams for AnyStreams {
    type Guard<'a> = AnyStream<'a>;

    // The default is to cost no call more than if it were the only one.
    #[inline(always)]
    fn get(&self, cpu: Cpu) -> AnyStream<'_> {
        match self {
            AnyStreams::Cpus(streams) => AnyStream::Cpu(streams.get(cpu)),
            others => others.get_other(cpu),
        }
    }

    fn count(&self) -> usize {
        match self {
            AnyStreams::Cpus(streams) => streams.count(),
            AnyStreams::Single(stream) => stream.count(),
            AnyStreams::Multi(streams) => streams.count(),
            AnyStreams::Mutex(stream) => stream.count(),
        }
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        match self {
            AnyStreams::Cpus(streams) => streams.limit(count),
            AnyStreams::Single(stream) => stream.limit(count),
            AnyStreams::Multi(streams) => streams.limit(count),
            AnyStreams::Mutex(stream) => stream.limit(count),
        }
    }
}

impl AnyStreams {
    #[inline(never)]
    fn get_other(&self, cpu: Cpu) -> AnyStream<'_> {
        match self {
            AnyStreams::Cpus(streams) => AnyStream::Cpu(streams.get(cpu)),
            AnyStreams::Single(stream) => AnyStream::Single(stream.get(cpu)),
            AnyStreams::Multi(streams) => AnyStream::Multi(streams.get(cpu)),
            AnyStreams::Mutex(stream) => AnyStream::Mutex(stream.get(cpu)),
        }
    }
}

impl Deref for AnyStream<'_> {
    type Target = Stream;
    #[inline]
    fn deref(&self) -> &Stream {
        match self {
            AnyStream::Cpu(stream) => stream,
            AnyStream::Single(stream) => stream,
            AnyStream::Multi(stream) => stream,
            AnyStream::Mutex(stream) => stream,
        }
    }
}

impl DerefMut for AnyStream<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Stream {
        match self {
            AnyStream::Cpu(stream) => stream,
            AnyStream::Single(stream) => stream,
            AnyStream::Multi(stream) => stream,
            AnyStream::Mutex(stream) => stream,
        }
    }
}
