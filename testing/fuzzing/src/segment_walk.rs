//! The target of the walk through a segment of the log.

use segments::{
    BLOCK_BYTES, Found, Generation, HEADER_BYTES, Header, MOST_BYTES, TAG_BYTES, UNIT_BYTES,
    stored, walk,
};

/// The bytes of a segment.
///
/// If the first byte is even, the rest is the segment. What is found must lie in it one behind the
/// other, with only padding or damage between, and each header must be the same after it is written
/// again. Otherwise the rest describes
/// objects, eight bytes each, and the walk must find them all.
pub fn segment_walk(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    match first % 2 {
        0 => foreign(rest),
        _ => described(rest),
    }
}

fn foreign(bytes: &[u8]) {
    // Where a segment says nothing of its life, any will do.
    let generation = bytes
        .first_chunk::<HEADER_BYTES>()
        .and_then(Header::decode)
        .map_or(Generation::FIRST, |header| header.generation);
    let block = BLOCK_BYTES as usize;
    let mut end = 0;
    // Whether an object is whole is up to the caller, and so may be anything.
    let is_whole = |found: &Found<'_>| found.header.key.is_multiple_of(2);
    for found in walk(bytes, generation, is_whole) {
        match found {
            Ok(found) => {
                let at = found.offset as usize;
                let gap = &bytes[end..at];
                assert!(gap.len() < block && gap.iter().all(|&byte| byte == 0), "padding");
                assert!(gap.is_empty() || at.is_multiple_of(block));
                let head = found.header.encode().expect("what was read can be written");
                assert_eq!(head, bytes[at..at + HEADER_BYTES]);
                let from = at + HEADER_BYTES;
                assert_eq!(found.object, &bytes[from..from + usize::from(found.header.length)]);
                assert_eq!(found.header.generation, generation);
                end = at + stored(found.header.length) as usize;
                assert!(end <= bytes.len());
            }
            Err(offset) => {
                assert!(offset as usize >= end && (offset as usize) < bytes.len());
                end = (offset as usize + 1).next_multiple_of(block);
            }
        }
    }
    let rest = bytes.get(end..).unwrap_or(&[]);
    let is_padding = rest.len() < block && rest.iter().all(|&byte| byte == 0);
    assert!(is_padding, "bytes were left out without a word");
}

fn described(words: &[u8]) {
    let mut headers = Vec::new();
    let mut bytes = Vec::new();
    let generation = Generation::FIRST;
    for word in words.as_chunks::<8>().0.iter().take(64) {
        let [k0, k1, k2, k3, l0, l1, codec, flags] = *word;
        let header = Header {
            key: u32::from_le_bytes([k0, k1, k2, k3]),
            length: (usize::from(u16::from_le_bytes([l0, l1])) % MOST_BYTES) as u16 + 1,
            codec: codec % 32,
            generation,
            tag: [flags; TAG_BYTES],
        };
        bytes.extend(header.encode().expect("in range"));
        bytes.resize(bytes.len() + usize::from(header.length), codec);
        bytes.resize(bytes.len().next_multiple_of(UNIT_BYTES as usize), 0);
        headers.push(header);
    }
    let found: Result<Vec<Header>, _> =
        walk(&bytes, generation, |_| true).map(|found| found.map(|found| found.header)).collect();
    assert_eq!(found, Ok(headers));
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let objects = [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [2, 0, 0, 0, 40, 0, 3, 0],
        [255, 255, 255, 255, 255, 15, 31, 0],
        [4, 0, 0, 0, 0, 16, 1, 1],
    ];
    let described = |count: usize| [&[1], objects[..count].as_flattened()].concat();
    let mut seeds: Vec<Vec<u8>> = (1..=objects.len()).map(described).collect();
    for (length, generation) in [(1, 1), (50, 1), (200, 4095)] {
        let generation = Generation::new(generation).expect("a generation");
        let header = Header { key: 7, length, codec: 2, generation, tag: [0; TAG_BYTES] };
        let mut segment = vec![0];
        for _ in 0..3 {
            segment.extend(header.encode().expect("in range"));
            segment.resize(segment.len() + usize::from(length), 0xa5);
            segment.resize((segment.len() - 1).next_multiple_of(UNIT_BYTES as usize) + 1, 0);
        }
        seeds.push(segment);
    }
    seeds
}
