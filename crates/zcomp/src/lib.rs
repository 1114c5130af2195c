//! Compresses and decompresses pages.
//!
//! Only this crate contains C libraries: liblz4 behind `lz4` and `lz4hc`, libzstd behind `zstd`,
//! libdeflate behind `deflate`. Each is a feature. `lzo`, `lzo-rle` and `842` are written here, in
//! safe Rust, and always there; the feature `lz4-rust` is lz4 in safe Rust. A
//! [`Compressor`] is a codec with its parameters, shared by all threads. A [`Context`] is the
//! private state that one thread at a time needs to run it. A [`Stream`] is a context with its
//! buffers, and [`Streams`] is the policy by which threads get a stream. A [`Bank`] has the codecs
//! of a store of pages, which may change while objects of older codecs exist. Pages filled with one
//! pattern need no codec: see [`same_filled`].
#![no_std]

extern crate alloc;

mod bank;
mod chosen;
mod codec;
mod compressor;
mod extent;
mod filled;
mod prefetch;
mod register;
mod stream;

pub use bank::{Bank, CODECS, Codec, NotInstalled, PRIORITIES};
pub use chosen::Chosen;
#[cfg(feature = "deflate")]
pub use codec::deflate::Deflate;
pub use codec::eight42::{Eight42, NAME as EIGHT42};
#[cfg(feature = "lz4")]
pub use codec::lz4::Lz4;
#[cfg(all(feature = "lz4-rust", not(feature = "lz4")))]
pub use codec::lz4_rust::Lz4;
#[cfg(feature = "lz4")]
pub use codec::lz4hc::Lz4hc;
pub use codec::lzo::{Lzo, LzoRle, NAME as LZO, NAME_RLE as LZO_RLE};
#[cfg(feature = "zstd")]
pub use codec::zstd::Zstd;
pub use codec::{ALGORITHMS, DEFAULT_ALGORITHM, DEFLATE, LZ4, LZ4HC, ZSTD, open};
pub use compressor::{
    Block, CodecError, Compressor, Context, Corrupt, EXTENT_PAGES, Packer, Params,
};
pub use extent::{ExtentPacker, Plan, ToPlan};
pub use filled::{fill, same_filled};
pub use prefetch::{prefetch_beginning, prefetch_sequel};
pub use register::Register;
pub use stream::{Buffer, OneStream, PerCpuStreams, Policy, Stream, Streams, StreamsOf};
