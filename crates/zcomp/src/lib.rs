//! Turns a page into fewer bytes and back.
//!
//! The only room with C libraries in it. A [`Compressor`] is a codec with its parameters, shared
//! by all; a [`Context`] is the private state one thread at a time needs to run it; a [`Stream`] is
//! a context with its buffers, and [`Streams`] is how threads come by one.
#![no_std]

extern crate alloc;

mod codec;
mod compressor;
mod stream;

pub use codec::deflate::{Deflate, NAME as DEFLATE};
pub use codec::lz4::{Lz4, NAME as LZ4};
pub use codec::zstd::{NAME as ZSTD, Zstd};
pub use compressor::{CodecError, Compressor, Context, Corrupt, Params};
pub use stream::{Buffer, LaneStreams, Stream, Streams};
