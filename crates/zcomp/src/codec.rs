//! The codecs. Each turns its parameters into a [`Compressor`](crate::Compressor), and knows
//! nothing of the others.

pub(crate) mod deflate;
pub(crate) mod lz4;
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

fn out_of_memory(name: &str) -> CodecError {
    CodecError(format!("{name}: no memory for a context"))
}
