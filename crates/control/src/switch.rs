//! The text of a switch.

use alloc::format;

use crate::ControlError;

/// The value of the switch `name`, from text as the kernel's `kstrtobool` reads it: the first
/// letter counts (`y`, `t`, `1`; `n`, `f`, `0`), and the second of `on` and `off`. The case does
/// not matter, nor does what follows.
///
/// # Errors
/// `EINVAL` for other text.
pub fn parse_switch(name: &str, text: &str) -> Result<bool, ControlError> {
    match text.as_bytes() {
        [b'1' | b'y' | b'Y' | b't' | b'T', ..] => Ok(true),
        [b'0' | b'n' | b'N' | b'f' | b'F', ..] => Ok(false),
        [b'o' | b'O', b'n' | b'N', ..] => Ok(true),
        [b'o' | b'O', b'f' | b'F', ..] => Ok(false),
        _ => {
            let text = text.strip_suffix('\n').unwrap_or(text);
            let message = format!("{name} takes Y or N, 1 or 0, on or off, not {text:?}");
            Err(ControlError::invalid(message))
        }
    }
}
