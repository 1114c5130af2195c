//! The codecs. Each turns its parameters into a [`Compressor`](crate::Compressor), and knows
//! nothing of the others.

pub(crate) mod deflate;
pub(crate) mod eight42;
mod liblz4;
pub(crate) mod lz4;
pub(crate) mod lz4hc;
pub(crate) mod lzo;
pub(crate) mod zstd;

use alloc::format;

use crate::{CodecError, Params};

/// The level that `params` ask of the codec `name`, or its default.
fn level_within(
    name: &str,
    what: &str,
    params: &Params,
    default: i32,
    allowed: core::ops::RangeInclusive<i32>,
) -> Result<i32, CodecError> {
    let level = params.level.unwrap_or(default);
    if allowed.contains(&level) {
        return Ok(level);
    }
    Err(CodecError(format!(
        "{name}: {what} {level} is out of range: {} to {} are allowed, {default} is the default",
        allowed.start(),
        allowed.end()
    )))
}

/// Refuses every parameter, for a codec that has none.
fn takes_nothing(name: &str, params: &Params) -> Result<(), CodecError> {
    if let Some(level) = params.level {
        return Err(CodecError(format!("{name}: has no levels, so level {level} is not allowed")));
    }
    no_window(name, params)?;
    no_dictionary(name, params)
}

fn no_window(name: &str, params: &Params) -> Result<(), CodecError> {
    match params.window_bits {
        None => Ok(()),
        Some(bits) => Err(CodecError(format!(
            "{name}: has no window to set, so window bits {bits} are not allowed; deflate has one"
        ))),
    }
}

fn no_dictionary(name: &str, params: &Params) -> Result<(), CodecError> {
    match params.dictionary {
        None => Ok(()),
        Some(_) => {
            Err(CodecError(format!("{name}: takes no dictionary; lz4, lz4hc and zstd take one")))
        }
    }
}

fn out_of_memory(name: &str) -> CodecError {
    CodecError(format!("{name}: no memory for a context"))
}
