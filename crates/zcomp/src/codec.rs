//! The codecs. Each makes a [`Compressor`] from its parameters, and is independent of the others.
//! [`open`] finds one by its name.

#[cfg(feature = "deflate")]
pub(crate) mod deflate;
pub(crate) mod eight42;
mod judge;
#[cfg(feature = "lz4")]
mod liblz4;
#[cfg(feature = "lz4")]
pub(crate) mod lz4;
#[cfg(all(feature = "lz4-rust", not(feature = "lz4")))]
pub(crate) mod lz4_rust;
#[cfg(feature = "lz4")]
pub(crate) mod lz4hc;
pub(crate) mod lzo;
#[cfg(feature = "zstd")]
mod matches;
mod names;
#[cfg(feature = "zstd")]
mod sequences;
#[cfg(feature = "zstd")]
pub(crate) mod zstd;

use alloc::{format, string::String, sync::Arc};

use crate::{CodecError, Compressor, Params};

pub use names::{DEFLATE, LZ4, LZ4HC, ZSTD};

/// All codecs of this build, in the order in which the kernel lists them.
pub const ALGORITHMS: &[&str] = &[
    lzo::NAME_RLE,
    lzo::NAME,
    #[cfg(any(feature = "lz4", feature = "lz4-rust"))]
    LZ4,
    #[cfg(feature = "lz4")]
    LZ4HC,
    #[cfg(feature = "zstd")]
    ZSTD,
    #[cfg(feature = "deflate")]
    DEFLATE,
    eight42::NAME,
];

/// The default codec: lz4, in a build without it lzo-rle.
pub const DEFAULT_ALGORITHM: &str =
    if cfg!(any(feature = "lz4", feature = "lz4-rust")) { LZ4 } else { lzo::NAME_RLE };

/// Opens the codec called `name`.
///
/// # Errors
/// [`CodecError`] for a name that is not in [`ALGORITHMS`] (the message lists them), for a
/// parameter that the codec refuses, and when memory is out.
pub fn open(name: &str, params: &Params) -> Result<Arc<dyn Compressor>, CodecError> {
    match name {
        lzo::NAME_RLE => lzo::LzoRle::new(params).map(|codec| Arc::new(codec) as _),
        lzo::NAME => lzo::Lzo::new(params).map(|codec| Arc::new(codec) as _),
        #[cfg(feature = "lz4")]
        LZ4 => lz4::Lz4::new(params).map(|codec| Arc::new(codec) as _),
        #[cfg(all(feature = "lz4-rust", not(feature = "lz4")))]
        LZ4 => lz4_rust::Lz4::new(params).map(|codec| Arc::new(codec) as _),
        #[cfg(feature = "lz4")]
        LZ4HC => lz4hc::Lz4hc::new(params).map(|codec| Arc::new(codec) as _),
        #[cfg(feature = "zstd")]
        ZSTD => zstd::Zstd::new(params).map(|codec| Arc::new(codec) as _),
        #[cfg(feature = "deflate")]
        DEFLATE => deflate::Deflate::new(params).map(|codec| Arc::new(codec) as _),
        eight42::NAME => eight42::Eight42::new(params).map(|codec| Arc::new(codec) as _),
        _ => Err(CodecError(unknown(name))),
    }
}

#[cold]
fn unknown(name: &str) -> String {
    let known = ALGORITHMS.join(" ");
    match name {
        LZ4 | LZ4HC | ZSTD | DEFLATE => {
            format!("this build has no {name}, which is a feature of it; there are: {known}")
        }
        _ => format!("no algorithm {name:?}; there are: {known}"),
    }
}
