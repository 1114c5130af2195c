//! Any bytes as text. A file name is bytes, and the value of an attribute is text.

use alloc::{string::String, vec::Vec};

/// The bytes that are no UTF-8 are the last 128 characters of all, which mean nothing by
/// themselves: byte 0x80 is U+10FF80, byte 0xff is U+10FFFF.
const FIRST: u32 = 0x10_ff00;

/// `bytes` as text that [`bytes_of`] turns back: UTF-8 is itself, and any other byte is a
/// character of its own.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                // Such a character in a name is not one of ours: it is its four bytes.
                Some(_) => c.encode_utf8(&mut [0; 4]).bytes().for_each(|b| text.push(char_of(b))),
                None => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| char_of(*byte)));
    }
    text
}

/// The bytes that `text` stands for.
#[must_use]
pub fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

fn char_of(byte: u8) -> char {
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte_of(c: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(c).checked_sub(FIRST)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [
            &b""[..],
            b"/tmp/plain",
            "/tmp/Größe \u{fffd} 文".as_bytes(),
            b"\xff",
            b"a\xffb\xfe\x80",
            // Characters that stand for bytes, whole and cut off.
            "\u{10ff80}\u{10ffff}\u{10ff00}".as_bytes(),
            b"\xf4\x8f\xbe",
            b"\xf4\xf4\x8f\xbe\x80",
            &all,
        ] {
            let text = text_of(bytes);
            assert_eq!(bytes_of(&text), bytes, "{text:?}");
        }
        for seed in 0..10_000u32 {
            let mut state = seed;
            let mut byte = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Mostly the bytes of the characters at the end.
                [0xf4, 0x8f, 0xbe, 0xbf, 0x80, b'a', (state >> 16) as u8, 0xff]
                    [(state >> 29) as usize]
            };
            let bytes: Vec<u8> = (0..9).map(|_| byte()).collect();
            assert_eq!(bytes_of(&text_of(&bytes)), bytes);
        }
    }

    #[test]
    fn plain_text_is_itself() {
        let text = "/var/lib/Größe 文 \u{10ff00}\u{fffd}";
        assert_eq!((&*text_of(text.as_bytes()), bytes_of(text)), (text, text.as_bytes().to_vec()));
    }
}
