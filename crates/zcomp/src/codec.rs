//! The codecs. Each makes a [`Compressor`] from its parameters, and is independent of the others.
//! [`open`] finds one by its name.

pub(crate) mod deflate;
pub(crate) mod eight42;
mod judge;
mod liblz4;
pub(crate) mod lz4;
pub(crate) mod lz4hc;
pub(crate) mod lzo;
pub(crate) mod zstd;

use alloc::{format, sync::Arc};

use crate::{CodecError, Compressor, Params};

/// All codecs, in the order in which the kernel lists them.
pub const ALGORITHMS: &[&str] =
    &[lzo::NAME_RLE, lzo::NAME, lz4::NAME, lz4hc::NAME, zstd::NAME, deflate::NAME, eight42::NAME];

/// The default codec.
pub const DEFAULT_ALGORITHM: &str = lz4::NAME;

/// Opens the codec called `name`.
///
/// # Errors
/// [`CodecError`] for a name that is not in [`ALGORITHMS`] (the message lists them), for a
/// parameter that the codec refuses, and when memory is out.
pub fn open(name: &str, params: &Params) -> Result<Arc<dyn Compressor>, CodecError> {
    match name {
        lzo::NAME_RLE => lzo::LzoRle::new(params).map(|codec| Arc::new(codec) as _),
        lzo::NAME => lzo::Lzo::new(params).map(|codec| Arc::new(codec) as _),
        lz4::NAME => lz4::Lz4::new(params).map(|codec| Arc::new(codec) as _),
        lz4hc::NAME => lz4hc::Lz4hc::new(params).map(|codec| Arc::new(codec) as _),
        zstd::NAME => zstd::Zstd::new(params).map(|codec| Arc::new(codec) as _),
        deflate::NAME => deflate::Deflate::new(params).map(|codec| Arc::new(codec) as _),
        eight42::NAME => eight42::Eight42::new(params).map(|codec| Arc::new(codec) as _),
        _ => {
            let known = ALGORITHMS.join(" ");
            Err(CodecError(format!("no algorithm {name:?}; there are: {known}")))
        }
    }
}
