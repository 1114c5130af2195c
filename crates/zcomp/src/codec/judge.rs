//! The checks of parameters that the codecs share.

use alloc::format;

use crate::compressor::{CodecError, Params};

/// The level that `params` give for the codec `name`, or its default.
#[cfg(any(feature = "lz4", feature = "lz4-rust", feature = "zstd", feature = "deflate"))]
pub(super) fn level_within(
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

/// Refuses every parameter; for a codec without parameters.
pub(super) fn takes_nothing(name: &str, params: &Params) -> Result<(), CodecError> {
    if let Some(level) = params.level {
        return Err(CodecError(format!("{name}: has no levels, so level {level} is not allowed")));
    }
    no_window(name, params)?;
    no_dictionary(name, params)
}

pub(super) fn no_window(name: &str, params: &Params) -> Result<(), CodecError> {
    match params.window_bits {
        None => Ok(()),
        Some(bits) => Err(CodecError(format!(
            "{name}: has no window to set, so window bits {bits} are not allowed; deflate has one"
        ))),
    }
}

pub(super) fn no_dictionary(name: &str, params: &Params) -> Result<(), CodecError> {
    match params.dictionary {
        None => Ok(()),
        Some(_) => {
            Err(CodecError(format!("{name}: takes no dictionary; lz4, lz4hc and zstd take one")))
        }
    }
}

pub(super) fn out_of_memory(name: &str) -> CodecError {
    CodecError(format!("{name}: no memory for a context"))
}
