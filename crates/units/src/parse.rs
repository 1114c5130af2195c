//! Parses sizes as an administrator writes them.

use alloc::string::{String, ToString};
use core::fmt;

/// Why a size was refused. The text gives the reason and the allowed forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParseSizeError {
    /// The text is empty.
    Empty,
    /// The number does not begin with a digit.
    NoNumber(String),
    /// The number is followed by text that is not a suffix.
    Junk {
        /// The whole text.
        text: String,
        /// The text after the number and its suffix.
        rest: String,
    },
    /// More than 2^64 - 1 bytes.
    TooLarge(String),
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALLOWED: &str = "write a number of bytes, optionally followed by one of K M G T P E";
        match self {
            Self::Empty => write!(f, "a size is missing; {ALLOWED}"),
            Self::NoNumber(text) => write!(f, "{text:?} is not a size; {ALLOWED}"),
            Self::Junk { text, rest } => {
                write!(f, "{text:?} is not a size: {rest:?} follows the number; {ALLOWED}")
            }
            Self::TooLarge(text) => {
                write!(f, "{text:?} is too large: a size is at most 18446744073709551615 bytes")
            }
        }
    }
}

impl core::error::Error for ParseSizeError {}

/// Parses bytes from text such as `4096`, `0x1000`, `512M` or `1g`.
///
/// The suffixes and the `0x` and leading-`0` (octal) prefixes are those of the kernel's `memparse`
/// (`lib/cmdline.c`, behaviour); unlike `memparse`, any text after the suffix is an error. White
/// space around the text (a shell's newline) is skipped.
///
/// # Errors
/// [`ParseSizeError`], with the reason.
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(ParseSizeError::Empty);
    }
    let (radix, digits) = match trimmed.as_bytes() {
        [b'0', b'x' | b'X', next, ..] if next.is_ascii_hexdigit() => (16, &trimmed[2..]),
        [b'0', next, ..] if next.is_ascii_digit() => (8, &trimmed[1..]),
        _ => (10, trimmed),
    };
    // A hexadecimal number may end in E, which is also a suffix: it counts as a digit, as in the
    // kernel.
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    if number.is_empty() {
        return Err(ParseSizeError::NoNumber(trimmed.to_string()));
    }
    let too_large = || ParseSizeError::TooLarge(trimmed.to_string());
    let value = u64::from_str_radix(number, radix).map_err(|_| too_large())?;
    let mut rest = suffix.chars();
    let shift = match rest.next().map(shift_of) {
        None => 0,
        Some(Some(shift)) => shift,
        Some(None) => rest_is_junk(trimmed, suffix)?,
    };
    if !rest.as_str().is_empty() {
        return rest_is_junk(trimmed, rest.as_str());
    }
    if value.leading_zeros() < shift && value != 0 {
        return Err(too_large());
    }
    Ok(value << shift)
}

/// The power of two that a suffix stands for.
pub(crate) fn shift_of(suffix: char) -> Option<u32> {
    let at = "KMGTPE".find(suffix.to_ascii_uppercase())?;
    Some(10 * (at as u32 + 1))
}

fn rest_is_junk<T>(text: &str, rest: &str) -> Result<T, ParseSizeError> {
    Err(ParseSizeError::Junk { text: text.to_string(), rest: rest.to_string() })
}
