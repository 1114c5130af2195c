//! Heads: the objects that say what a value is.
//!
//! A head is twelve bytes, the key, and then what [`Form`] says. The list of a value that is kept
//! in chunks is a row of words of 32 bits. Each unit has one that says how and how long it is, then
//! a handle for each chunk; or the two halves of the pattern that fills it.

use units::PAGE_SIZE;
use zsmalloc::Handle;

/// Bytes of a head before the key.
pub(crate) const HEAD_BYTES: usize = 12;

/// The most words of a list in the objects that a long list is kept in.
pub(crate) const WORDS: usize = PAGE_SIZE / 4;

/// How a value is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Its bytes follow the key.
    Raw,
    /// Its one unit follows the key, compressed to so many bytes.
    Packed(usize),
    /// A pattern of eight bytes follows the key and fills the value.
    Filled,
    /// So many words of its list follow the key.
    Listed(usize),
    /// The number of words of its list follows the key, then the handles of so many objects that
    /// have them.
    Long(usize),
}

/// What is known of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Bytes of the value.
    pub(crate) value: usize,
    /// Bytes of the key.
    pub(crate) key: usize,
    pub(crate) form: Form,
    /// Its units are compressed with the second codec.
    pub(crate) cold: bool,
    /// The second codec does not make it smaller.
    pub(crate) tried: bool,
    /// The second at which its life ends; 0 for never.
    pub(crate) expires: u32,
}

const VALUE_BITS: u32 = 25;
const KEY_BITS: u32 = 11;
const FORM_SHIFT: u32 = VALUE_BITS + KEY_BITS;
const COLD_SHIFT: u32 = FORM_SHIFT + 3;
const EXTRA_SHIFT: u32 = FORM_SHIFT + 4;
const TRIED_SHIFT: u32 = EXTRA_SHIFT + 16;

impl Head {
    /// The head of a value that is kept as it is, or of which the form is to come.
    pub(crate) fn new(value: usize, key: usize, expires: u32) -> Head {
        Head { value, key, form: Form::Raw, cold: false, tried: false, expires }
    }

    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let (form, extra) = match self.form {
            Form::Raw => (0, 0),
            Form::Packed(bytes) => (1, bytes),
            Form::Filled => (2, 0),
            Form::Listed(words) => (3, words),
            Form::Long(objects) => (4, objects),
        };
        let word = self.value as u64
            | (self.key as u64) << VALUE_BITS
            | form << FORM_SHIFT
            | u64::from(self.cold) << COLD_SHIFT
            | (extra as u64) << EXTRA_SHIFT
            | u64::from(self.tried) << TRIED_SHIFT;
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&self.expires.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Head {
        let (word, rest) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let word = u64::from_le_bytes(*word);
        let expires = rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let extra = (word >> EXTRA_SHIFT) as u16 as usize;
        let form = match word >> FORM_SHIFT & 7 {
            0 => Form::Raw,
            1 => Form::Packed(extra),
            2 => Form::Filled,
            3 => Form::Listed(extra),
            _ => Form::Long(extra),
        };
        let value = (word & ((1 << VALUE_BITS) - 1)) as usize;
        let key = (word >> VALUE_BITS & ((1 << KEY_BITS) - 1)) as usize;
        let is_set = |shift: u32| word >> shift & 1 != 0;
        Head { value, key, form, cold: is_set(COLD_SHIFT), tried: is_set(TRIED_SHIFT), expires }
    }

    /// Bytes of the whole object.
    pub(crate) fn object_bytes(&self) -> usize {
        HEAD_BYTES
            + self.key
            + match self.form {
                Form::Raw => self.value,
                Form::Packed(bytes) => bytes,
                Form::Filled => 8,
                Form::Listed(words) => words * 4,
                Form::Long(objects) => 4 + objects * 4,
            }
    }

    /// Bytes of the key and the value: what the user knows of.
    pub(crate) fn data(&self) -> usize {
        self.key + self.value
    }

    pub(crate) fn is_over(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }
}

/// The head at the beginning of `bytes`, its key, and what follows the key; `None` if the bytes are
/// too few. What follows a member of a group has the members behind it.
pub(crate) fn split(bytes: &[u8]) -> Option<(Head, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    let head = Head::decode(head);
    let (key, rest) = rest.split_at_checked(head.key)?;
    Some((head, key, rest))
}

/// Member `number` of a group: the bytes from its head on.
pub(crate) fn member(group: &[u8], number: usize) -> Option<(Head, &[u8])> {
    let mut rest = group;
    for _ in 0..number {
        let head = Head::decode(rest.first_chunk()?);
        rest = rest.get(head.object_bytes()..)?;
    }
    let head = Head::decode(rest.first_chunk()?);
    Some((head, rest.get(..head.object_bytes())?))
}

/// How the unit of a value is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Compressed to so many bytes.
    Packed(usize),
    /// As it is: so many bytes.
    Raw(usize),
    /// Filled with a pattern of eight bytes.
    Filled,
}

impl Unit {
    pub(crate) fn encode(self) -> u32 {
        match self {
            Unit::Packed(bytes) => bytes as u32,
            Unit::Raw(bytes) => bytes as u32 | 1 << 28,
            Unit::Filled => 2 << 28,
        }
    }

    pub(crate) fn decode(word: u32) -> Unit {
        let bytes = (word & 0x0fff_ffff) as usize;
        match word >> 28 {
            0 => Unit::Packed(bytes),
            1 => Unit::Raw(bytes),
            _ => Unit::Filled,
        }
    }

    /// Words that follow the word of the unit.
    pub(crate) fn words(self) -> usize {
        match self {
            Unit::Packed(bytes) | Unit::Raw(bytes) => bytes.div_ceil(PAGE_SIZE),
            Unit::Filled => 2,
        }
    }
}

/// Goes through a list: passes each unit and its words to `see`, until it returns `false`.
pub(crate) fn each_unit(mut list: &[u32], mut see: impl FnMut(Unit, &[u32]) -> bool) {
    while let Some((word, rest)) = list.split_first() {
        let unit = Unit::decode(*word);
        let Some((words, next)) = rest.split_at_checked(unit.words()) else { return };
        if !see(unit, words) {
            return;
        }
        list = next;
    }
}

/// The chunks of a unit: the handle and the bytes of each.
pub(crate) fn chunks(unit: Unit, words: &[u32]) -> impl Iterator<Item = (Handle, usize)> {
    let bytes = match unit {
        Unit::Packed(bytes) | Unit::Raw(bytes) => bytes,
        Unit::Filled => 0,
    };
    let lengths = (0..bytes).step_by(PAGE_SIZE).map(move |at| (bytes - at).min(PAGE_SIZE));
    words.iter().map(|word| Handle::from_raw(*word)).zip(lengths)
}

/// The pattern of eight bytes that fills all of `bytes`, of which there are eight at least.
pub(crate) fn pattern_of(bytes: &[u8]) -> Option<[u8; 8]> {
    let pattern = *bytes.first_chunk::<8>()?;
    let start = bytes.len().min(128);
    let is = |part: &[u8]| part[..part.len() - 8] == part[8..];
    (is(&bytes[..start]) && is(bytes)).then_some(pattern)
}

/// Fills `into` with a pattern, from byte `from` of a run of it on.
pub(crate) fn fill(into: &mut [u8], pattern: [u8; 8], from: usize) {
    let mut turned = pattern;
    turned.rotate_left(from % 8);
    for part in into.chunks_mut(8) {
        part.copy_from_slice(&turned[..part.len()]);
    }
}

/// The words of a list that are kept as bytes.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{MAX_KEY, MAX_VALUE};

    #[test]
    fn heads_say_what_they_were_made_of() {
        let forms =
            [Form::Raw, Form::Packed(3800), Form::Filled, Form::Listed(1021), Form::Long(12)];
        for form in forms {
            for (value, key, expires) in [(MAX_VALUE, MAX_KEY, u32::MAX), (0, 0, 0)] {
                for (cold, tried) in [(false, false), (true, false), (false, true)] {
                    let head = Head { value, key, form, cold, tried, expires };
                    assert_eq!(Head::decode(&head.encode()), head);
                }
            }
        }
        for unit in [Unit::Packed(70_000), Unit::Raw(65_536), Unit::Filled] {
            assert_eq!(Unit::decode(unit.encode()), unit);
        }
    }

    #[test]
    fn patterns_are_found_and_filled_at_any_place() {
        let mut bytes = vec![0; 1003];
        fill(&mut bytes, *b"abcdefgh", 0);
        assert_eq!(pattern_of(&bytes), Some(*b"abcdefgh"));
        assert_eq!(pattern_of(b"abcdefg"), None);
        for from in 0..20 {
            let mut part = vec![0; 100];
            fill(&mut part, *b"abcdefgh", from);
            assert_eq!(part, bytes[from..from + 100]);
        }
        for at in [7, 500, 1002] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(pattern_of(&other), None, "a change at {at}");
        }
    }
}
