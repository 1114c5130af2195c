//! A snapshot of a store: the contents of its records, from and to bytes.
//!
//! All numbers are little-endian. A record has a kind and contents; the module `snapshot` of the
//! crate `zram` says how a file has them, with their sums. By kind:
//!
//! 1. *Begin*, the first: bytes of a unit (4), seconds since 1970 (8).
//! 2. *Codec*: its name. Codecs have numbers in the order of their records, from 0.
//! 3. *Values*: entries. What belongs to one entry is in one record.
//! 4. *End*, the last: values (8), groups (8).
//!
//! An entry is eight bytes and what belongs to it: a kind (1), a codec (1), the bytes of a key (2),
//! a length (4).
//!
//! | kind | length | what follows |
//! |---|---|---|
//! | 1 value | of the value | the seconds that it has to live, 0 for ever (4), its key |
//! | 2 group | of its members | a bit for each member, set if it is a value (32) |
//! | 3 packed | of what follows | a unit, or the members of a group, compressed |
//! | 4 raw | of what follows | a unit as it is |
//! | 5 filled | 8 | the eight bytes that fill a unit |
//! | 6 all | 8 | the eight bytes that fill the whole value |
//!
//! A value has its units behind it, a group one entry of kind 3. A member is twelve bytes, its key
//! and its value: in the first eight bytes the length of the value (25 bits from bit 0) and of the
//! key (11 bits); the rest is 0 in those whose bit is set. If a key comes twice, the later value
//! counts.

use alloc::vec::Vec;

use crate::word::MAX_MEMBERS;

pub(crate) mod record {
    pub(crate) const BEGIN: u32 = 1;
    pub(crate) const CODEC: u32 = 2;
    pub(crate) const VALUES: u32 = 3;
    pub(crate) const END: u32 = 4;
}

const VALUE: u8 = 1;
const GROUP: u8 = 2;
const PACKED: u8 = 3;
const RAW: u8 = 4;
const FILLED: u8 = 5;
const ALL: u8 = 6;

/// A bit for each member of a group.
pub(crate) type Live = [u64; MAX_MEMBERS / 64];

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry<'a> {
    Value { codec: u8, length: usize, life: u32, key: &'a [u8] },
    Group { codec: u8, length: usize, live: Live },
    Part(Part<'a>),
}

/// A part of a value or a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part<'a> {
    Packed(&'a [u8]),
    Raw(&'a [u8]),
    Filled([u8; 8]),
    All([u8; 8]),
}

/// Appends an entry.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: Entry<'_>) {
    let mut begin = |kind: u8, codec: u8, key: usize, length: usize| {
        out.extend([kind, codec]);
        out.extend((key as u16).to_le_bytes());
        out.extend((length as u32).to_le_bytes());
    };
    match entry {
        Entry::Value { codec, length, life, key } => {
            begin(VALUE, codec, key.len(), length);
            out.extend(life.to_le_bytes());
            out.extend(key);
        }
        Entry::Group { codec, length, live } => {
            begin(GROUP, codec, 0, length);
            out.extend(live.iter().flat_map(|word| word.to_le_bytes()));
        }
        Entry::Part(part) => {
            let (kind, bytes) = match &part {
                Part::Packed(bytes) => (PACKED, *bytes),
                Part::Raw(bytes) => (RAW, *bytes),
                Part::Filled(pattern) => (FILLED, &pattern[..]),
                Part::All(pattern) => (ALL, &pattern[..]),
            };
            begin(kind, 0, 0, bytes.len());
            out.extend(bytes);
        }
    }
}

/// Takes an entry off what is left; `None` if that begins with none.
pub(crate) fn take_entry<'a>(bytes: &mut &'a [u8]) -> Option<Entry<'a>> {
    let [kind, codec] = *take(bytes)?;
    let key = usize::from(u16::from_le_bytes(*take(bytes)?));
    let length = u32::from_le_bytes(*take(bytes)?) as usize;
    let entry = match kind {
        VALUE => {
            let life = u32::from_le_bytes(*take(bytes)?);
            let (key, rest) = bytes.split_at_checked(key)?;
            *bytes = rest;
            return Some(Entry::Value { codec, length, life, key });
        }
        GROUP => {
            let mut live = Live::default();
            for word in &mut live {
                *word = u64::from_le_bytes(*take(bytes)?);
            }
            Entry::Group { codec, length, live }
        }
        _ => {
            let (own, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            let part = match kind {
                PACKED => Part::Packed(own),
                RAW => Part::Raw(own),
                FILLED => Part::Filled(own.try_into().ok()?),
                ALL => Part::All(own.try_into().ok()?),
                _ => return None,
            };
            if codec != 0 {
                return None;
            }
            Entry::Part(part)
        }
    };
    (key == 0).then_some(entry)
}

/// Takes the first bytes of what is left.
pub(crate) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

/// Whether the bit of a member is set.
pub(crate) fn is_live(live: &Live, number: usize) -> bool {
    live[number / 64] & 1 << (number % 64) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_what_they_were_made_of() {
        let live = [1, u64::MAX, 0, 1 << 63];
        let entries = [
            Entry::Value { codec: 1, length: 1 << 24, life: u32::MAX, key: &[7; 1024] },
            Entry::Value { codec: 0, length: 0, life: 0, key: b"" },
            Entry::Group { codec: 1, length: 8192, live },
            Entry::Part(Part::Packed(&[1; 65_536])),
            Entry::Part(Part::Raw(b"raw")),
            Entry::Part(Part::Filled(*b"12345678")),
            Entry::Part(Part::All([0; 8])),
        ];
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| put_entry(&mut bytes, *entry));
        let mut rest = &bytes[..];
        for entry in entries {
            let before = rest;
            assert_eq!(take_entry(&mut rest), Some(entry));
            let whole = before.len() - rest.len();
            for cut in [0, 1, 7, 8, whole - 1] {
                let is_whole = take_entry(&mut &before[..cut.min(whole - 1)]);
                assert_eq!(is_whole, None, "{cut} bytes of {entry:?}");
            }
        }
        assert!(rest.is_empty());
        assert_eq!(take_entry(&mut &[9, 0, 0, 0, 0, 0, 0, 0][..]), None);
        assert!(is_live(&live, 0) && is_live(&live, 255) && !is_live(&live, 128));
    }
}
