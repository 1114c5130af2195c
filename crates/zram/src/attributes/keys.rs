//! The words of attributes: numbers, switches, and `key=value`.

use alloc::{format, string::String};
use core::fmt::{Arguments, Write};

use control::{ControlError, Errno};
use units::parse_size;

pub(super) fn put(out: &mut dyn Write, text: Arguments<'_>) -> Result<(), ControlError> {
    out.write_fmt(text).map_err(|_| ControlError::new(Errno::EIO, "the value could not be printed"))
}

pub(super) fn size(text: &str) -> Result<u64, ControlError> {
    parse_size(text).map_err(|error| ControlError::invalid(format!("{error}")))
}

/// A whole number, decimal or with 0x (the kernel's kstrtoint with base 0).
pub(super) fn integer<T>(what: &str, text: &str) -> Result<T, ControlError>
where
    T: TryFrom<i128>,
{
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X"));
    match digits.map(|digits| i128::from_str_radix(digits, 16)) {
        Some(Ok(number)) if number >= 0 => fitting(what, trimmed, number),
        _ => decimal(what, text),
    }
}

/// A whole decimal number. A number that is too large is `ERANGE`, as in the kernel's kstrtoint.
pub(super) fn decimal<T>(what: &str, text: &str) -> Result<T, ControlError>
where
    T: TryFrom<i128>,
{
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(ControlError::invalid(format!("{what} takes a whole number, not {text:?}")));
    }
    fitting(what, text, text.parse().unwrap_or(i128::MAX))
}

fn fitting<T>(what: &str, text: &str, number: i128) -> Result<T, ControlError>
where
    T: TryFrom<i128>,
{
    T::try_from(number).map_err(|_| match text.starts_with('-') {
        true => ControlError::invalid(format!("{what} takes no number as small as {text}")),
        false => {
            ControlError::new(Errno::ERANGE, format!("{what} takes no number as large as {text}"))
        }
    })
}

/// The words of a text: keys with values, and words without a key. As in Linux (`next_arg`), what
/// stands in double quotes may have blanks in it, and quotes round a value are not of it.
pub(super) fn words(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut is_quoted = false;
    let blank = move |c: char| {
        is_quoted ^= c == '"';
        c.is_ascii_whitespace() && !is_quoted
    };
    let words = text.split(blank).filter(|word| !word.is_empty());
    words.map(|word| match word.split_once('=') {
        Some((key, value)) => {
            let bare = value.strip_prefix('"').map(|it| it.strip_suffix('"').unwrap_or(it));
            (key, Some(bare.unwrap_or(value)))
        }
        None => (word, None),
    })
}

/// A word that [`words`] reads as this one.
pub(super) fn word(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) if value.contains(|c: char| c.is_ascii_whitespace()) => {
            format!("{key}=\"{value}\"")
        }
        Some(value) => format!("{key}={value}"),
        None => String::from(key),
    }
}

/// The error for a refused key.
pub(super) fn unknown(what: &str, key: &str, value: Option<&str>, allowed: &str) -> ControlError {
    let word = word(key, value);
    ControlError::invalid(format!("{what} knows no {word:?}; it takes {allowed}"))
}
