//! Any of the policies: what an engine has, so that there need not be one engine for each.

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};

use sync::{MutexGuard, OwnerGuard, SystemGuard};
use units::Lane;

use super::{
    LaneStreams, LentStream, MultiStreams, MutexStream, OneStream, SingleStream, Stream, Streams,
};

/// Streams under one policy or another.
pub enum AnyStreams {
    /// `percpu`.
    Lanes(LaneStreams),
    /// `single`.
    Single(SingleStream),
    /// `multi`. It is larger than the others.
    Multi(Box<MultiStreams>),
    /// `mutex`.
    Mutex(MutexStream),
}

/// A stream of [`AnyStreams`].
pub enum AnyStream<'a> {
    /// Of a lane.
    Lane(MutexGuard<'a, Stream>),
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
    fn get(&self, lane: Lane) -> AnyStream<'_> {
        match self {
            AnyStreams::Lanes(streams) => AnyStream::Lane(streams.get(lane)),
            others => others.get_other(lane),
        }
    }

    fn count(&self) -> usize {
        match self {
            AnyStreams::Lanes(streams) => streams.count(),
            AnyStreams::Single(stream) => stream.count(),
            AnyStreams::Multi(streams) => streams.count(),
            AnyStreams::Mutex(stream) => stream.count(),
        }
    }

    fn limit(&self, count: usize) -> Result<(), OneStream> {
        match self {
            AnyStreams::Lanes(streams) => streams.limit(count),
            AnyStreams::Single(stream) => stream.limit(count),
            AnyStreams::Multi(streams) => streams.limit(count),
            AnyStreams::Mutex(stream) => stream.limit(count),
        }
    }
}

impl AnyStreams {
    #[inline(never)]
    fn get_other(&self, lane: Lane) -> AnyStream<'_> {
        match self {
            AnyStreams::Lanes(streams) => AnyStream::Lane(streams.get(lane)),
            AnyStreams::Single(stream) => AnyStream::Single(stream.get(lane)),
            AnyStreams::Multi(streams) => AnyStream::Multi(streams.get(lane)),
            AnyStreams::Mutex(stream) => AnyStream::Mutex(stream.get(lane)),
        }
    }
}

impl Deref for AnyStream<'_> {
    type Target = Stream;
    #[inline]
    fn deref(&self) -> &Stream {
        match self {
            AnyStream::Lane(stream) => stream,
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
            AnyStream::Lane(stream) => stream,
            AnyStream::Single(stream) => stream,
            AnyStream::Multi(stream) => stream,
            AnyStream::Mutex(stream) => stream,
        }
    }
}
