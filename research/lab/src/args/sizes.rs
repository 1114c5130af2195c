//! Parses numbers on the command line, and sizes in the kernel's notation.

use std::ops::RangeBounds;

use clap::ValueEnum;
use clap::builder::RangedI64ValueParser;

use crate::drive::modes::check_size;

/// Some MiB at least: no program begins in less.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < 4 << 20 {
        return Err(format!("{text} is less than 4M"));
    }
    Ok(bytes)
}

/// A page, twice that and so on, up to what is compared at once.
pub fn request_size(text: &str) -> Result<u64, String> {
    let pages = [1, 2, 4, 8, 16, 32, 64];
    let is_one = |bytes: &u64| pages.iter().any(|pages| pages * units::PAGE_SIZE as u64 == *bytes);
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    Some(bytes).filter(is_one).ok_or(format!("{text} is none of 4K, 8K, 16K and so on up to 256K"))
}

/// In whole pages, as swap is.
pub fn swap_size(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes % units::PAGE_SIZE as u64 != 0 {
        return Err(format!("{text} is no multiple of 4K"));
    }
    Ok(bytes)
}

/// What a thread of `locks` and `streams` may have.
pub fn thread_size(text: &str) -> Result<u64, String> {
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    check_size(bytes).map(|()| bytes)
}

/// fio writes in pieces of 128 KiB, and wants more than one.
pub fn export_size(text: &str) -> Result<u64, String> {
    const PIECE: u64 = 128 << 10;
    let bytes = units::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < 8 * PIECE || bytes % PIECE != 0 {
        return Err(format!("{text} is no multiple of 128K that is 1M at least"));
    }
    Ok(bytes)
}

/// The name of a value on the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A number in this range.
pub fn within(range: impl RangeBounds<i64>) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(range)
}
