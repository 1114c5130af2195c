//! The codecs of a device, by the numbers that objects have.
//!
//! | word | what |
//! |---|---|
//! | 0 | a checksum of the words that follow, never 0; 0 while they are written |
//! | 1 | the priority |
//! | 2 | the level, in the lower 32 bits, and 1 above them if there is one |
//! | 3 | the window, likewise |
//! | 4 | the bytes of the name |
//! | 5–8 | the name |
//! | 9 | the bytes of the dictionary; 0 if there is none |
//! | 16 … | the dictionary |

use alloc::{format, string::String, vec::Vec};

use objects::{Words, sum, words};
use zcomp::{CODECS, Chosen, CodecError, Params};

/// The first word of codec 0.
pub(super) const FIRST: usize = 16;
/// The longest dictionary that is kept, in bytes.
const MOST_DICTIONARY: usize = 1 << 20;
const NAME_BYTES: usize = 32;
const WORD: usize = size_of::<u64>();
const DICTIONARY: usize = 16;
const STRIDE: usize = DICTIONARY + MOST_DICTIONARY / WORD;
/// One more than the last word of all codecs.
pub(super) const END: usize = FIRST + CODECS * STRIDE;

const SUM_AT: usize = 0;
const PRIORITY_AT: usize = 1;
const LEVEL_AT: usize = 2;
const WINDOW_AT: usize = 3;
const NAME_LENGTH_AT: usize = 4;
const NAME_AT: usize = 5;
const DICTIONARY_LENGTH_AT: usize = 9;

/// A codec as it was kept.
pub(crate) struct KeptCodec {
    pub(crate) priority: u8,
    pub(crate) name: String,
    pub(crate) params: Params,
}

fn optional(value: Option<i32>) -> u64 {
    value.map_or(0, |value| 1 << 32 | u64::from(value as u32))
}

fn value(word: u64) -> Option<i32> {
    (word >> 32 != 0).then_some(word as u32 as i32)
}

/// The codec of a number, if it has one.
///
/// # Errors
/// Says that what was kept is damaged.
pub(super) fn read(from: &Words, number: u8) -> Result<Option<KeptCodec>, String> {
    let first = FIRST + usize::from(number) * STRIDE;
    let get = |at: usize| from.get(first + at);
    let kept = get(SUM_AT);
    if kept == 0 {
        return Ok(None);
    }
    let damaged = || format!("what was kept of codec {number} is damaged");
    let bytes = |at: usize, length: u64, most: usize| -> Result<Vec<u8>, String> {
        let length = usize::try_from(length).ok().filter(|length| *length <= most);
        Ok(from.bytes(first + at, length.ok_or_else(damaged)?))
    };
    let name = bytes(NAME_AT, get(NAME_LENGTH_AT), NAME_BYTES)?;
    let dictionary = bytes(DICTIONARY, get(DICTIONARY_LENGTH_AT), MOST_DICTIONARY)?;
    let head = (PRIORITY_AT..DICTIONARY).map(get);
    if sum(head.chain(words(&dictionary))) != kept {
        return Err(damaged());
    }
    Ok(Some(KeptCodec {
        priority: u8::try_from(get(PRIORITY_AT)).map_err(|_| damaged())?,
        name: String::from_utf8(name).map_err(|_| damaged())?,
        params: Params {
            level: value(get(LEVEL_AT)),
            window_bits: value(get(WINDOW_AT)),
            dictionary: (!dictionary.is_empty()).then(|| dictionary.into()),
        },
    }))
}

/// Whether a codec can be kept.
///
/// # Errors
/// Says what is too long.
pub(super) fn judge(chosen: &Chosen) -> Result<(), CodecError> {
    let bytes = chosen.params.dictionary.as_ref().map_or(0, |dictionary| dictionary.len());
    if bytes > MOST_DICTIONARY {
        let message = format!(
            "the dictionary has {bytes} bytes; a disk that outlives the process takes at most \
             {MOST_DICTIONARY}"
        );
        return Err(CodecError(message));
    }
    match chosen.compressor.name().len() {
        0..=NAME_BYTES => Ok(()),
        bytes => Err(CodecError(format!("a name of {bytes} bytes is too long"))),
    }
}

/// Keeps a codec under its number.
pub(super) fn write(to: &Words, number: u8, priority: u8, chosen: &Chosen) {
    let first = FIRST + usize::from(number) * STRIDE;
    let (params, name) = (&chosen.params, chosen.compressor.name().as_bytes());
    let dictionary: &[u8] = params.dictionary.as_deref().unwrap_or_default();
    let mut head = [0; DICTIONARY];
    head[PRIORITY_AT] = u64::from(priority);
    head[LEVEL_AT] = optional(params.level);
    head[WINDOW_AT] = optional(params.window_bits);
    head[NAME_LENGTH_AT] = name.len() as u64;
    head[DICTIONARY_LENGTH_AT] = dictionary.len() as u64;
    for (place, word) in head[NAME_AT..DICTIONARY_LENGTH_AT].iter_mut().zip(words(name)) {
        *place = word;
    }
    to.set(first + SUM_AT, 0);
    let all = || head[PRIORITY_AT..].iter().copied().chain(words(dictionary));
    for (at, word) in (first + PRIORITY_AT..).zip(all()) {
        to.set(at, word);
    }
    to.set(first + SUM_AT, sum(all()));
}
