//! Text of other programs, made fit for a terminal.

use std::ffi::OsStr;

/// `text` without characters that act on a terminal or change the order of others: each is written
/// as an escape such as `\u{1b}`. A process chooses its own name and the names of its files, and
/// the reader of a message may be root.
#[must_use]
pub fn printable(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref().to_string_lossy();
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || reorders(c) {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    safe
}

/// The marks of the bidirectional algorithm (Unicode, annex 9), and the two separators of lines.
fn reorders(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        assert_eq!(printable("\x1b]0;owned\x07"), "\\u{1b}]0;owned\\u{7}");
        assert_eq!(printable("a\nb\t\u{9b}2J\u{202e}c"), "a\\nb\\t\\u{9b}2J\\u{202e}c");
        assert_eq!(printable(Path::new("/mnt/Größe 'x' \\")), "/mnt/Größe 'x' \\");
        assert_eq!(printable(OsStr::from_bytes(b"\xff\x1b")), "\u{fffd}\\u{1b}");
    }
}
