//! Decoders of lzo and 842 that share nothing with ours: byte by byte, bit by bit, in the words of
//! the formats' descriptions. They take only what is right, and tell what they met on the way.

use std::collections::BTreeMap;

use super::pages::PAGE_SIZE;

/// How often each form of instruction was met, by the name the descriptions give it.
pub type Met = BTreeMap<String, usize>;

fn meet(met: &mut Met, name: &str) {
    *met.entry(name.to_owned()).or_default() += 1;
}

/// The bytes of an lzo or lzo-rle stream.
pub fn lzo(bytes: &[u8]) -> Option<(Vec<u8>, Met)> {
    let mut page: Vec<u8> = Vec::new();
    let mut met = Met::new();
    let mut at = 0;
    let mut state = 0;
    let byte = |at: &mut usize| {
        let byte = bytes.get(*at).copied();
        *at += 1;
        byte.map(usize::from)
    };
    let length = |at: &mut usize, bits: u32, instruction: usize| {
        let most = (1 << bits) - 1;
        let mut length = instruction & most;
        if length == 0 {
            length = most;
            loop {
                match byte(at)? {
                    0 => length += 255,
                    last => break length += last,
                }
            }
        }
        Some(length)
    };
    let mut version = 0;
    if bytes.len() >= 5 && bytes[0] == 17 {
        version = bytes[1];
        at = 2;
        if version > 1 {
            return None;
        }
    }
    let mut literals = 0;
    if *bytes.get(at)? > 17 {
        literals = byte(&mut at)? - 17;
        meet(&mut met, if literals < 4 { "first, few" } else { "first, many" });
        state = literals.min(4);
    }
    loop {
        for _ in 0..literals {
            page.push(byte(&mut at)? as u8);
        }
        let instruction = byte(&mut at)?;
        let (distance, count);
        match instruction {
            0..=15 if state == 0 => {
                meet(&mut met, if instruction == 0 { "long run" } else { "run" });
                literals = 3 + length(&mut at, 4, instruction)?;
                state = 4;
                continue;
            }
            0..=15 => {
                let high = byte(&mut at)?;
                let near = (high << 2) + (instruction >> 2);
                literals = instruction & 3;
                if state == 4 {
                    meet(&mut met, "3 from 2-3 kB");
                    (distance, count) = (near + 2049, 3);
                } else {
                    meet(&mut met, "2 from 1 kB");
                    (distance, count) = (near + 1, 2);
                }
            }
            16..=31 => {
                let mut far = 16_384 + ((instruction & 8) << 11);
                let mut ahead = at;
                if version == 1 && instruction & 8 != 0 {
                    let low = byte(&mut ahead)?;
                    let all = low | byte(&mut ahead)? << 8;
                    if all >> 2 == 0x3fff {
                        meet(&mut met, "zeros");
                        let run = (byte(&mut ahead)? << 3 | (instruction & 7)) + 4;
                        page.resize(page.len() + run, 0);
                        at = ahead;
                        literals = low & 3;
                        state = literals;
                        continue;
                    }
                }
                count = 2 + length(&mut at, 3, instruction)?;
                let low = byte(&mut at)?;
                let all = low | byte(&mut at)? << 8;
                far += all >> 2;
                literals = low & 3;
                if far == 16_384 {
                    meet(&mut met, "end");
                    let whole = at == bytes.len() && count == 3 && page.len() == PAGE_SIZE;
                    return whole.then_some((page, met));
                }
                distance = far;
            }
            32..=63 => {
                count = 2 + length(&mut at, 5, instruction)?;
                let low = byte(&mut at)?;
                distance = ((low | byte(&mut at)? << 8) >> 2) + 1;
                literals = low & 3;
                let name = if instruction == 32 { "long copy" } else { "copy" };
                meet(&mut met, name);
            }
            64..=127 => {
                meet(&mut met, "3-4 from 2 kB");
                count = 3 + (instruction >> 5 & 1);
                distance = (byte(&mut at)? << 3) + (instruction >> 2 & 7) + 1;
                literals = instruction & 3;
            }
            _ => {
                meet(&mut met, "5-8 from 2 kB");
                count = 5 + (instruction >> 5 & 3);
                distance = (byte(&mut at)? << 3) + (instruction >> 2 & 7) + 1;
                literals = instruction & 3;
            }
        }
        state = literals;
        if distance > page.len() || page.len() > PAGE_SIZE {
            return None;
        }
        for _ in 0..count {
            page.push(page[page.len() - distance]);
        }
    }
}

/// What each code of 842 asks for, by its number.
#[rustfmt::skip]
const TEMPLATES: [&str; 26] = [
    "D8", "D4 D2 I2", "D4 I2 D2", "D4 I2 I2", "D4 I4",
    "D2 I2 D4", "D2 I2 D2 I2", "D2 I2 I2 D2", "D2 I2 I2 I2", "D2 I2 I4",
    "I2 D2 D4", "I2 D4 I2", "I2 D2 I2 D2", "I2 D2 I2 I2", "I2 D2 I4",
    "I2 I2 D4", "I2 I2 D2 I2", "I2 I2 I2 D2", "I2 I2 I2 I2", "I2 I2 I4",
    "I4 D4", "I4 D2 I2", "I4 I2 D2", "I4 I2 I2", "I4 I4",
    "I8",
];

/// The bytes of an 842 stream.
pub fn eight42(bytes: &[u8]) -> Option<(Vec<u8>, Met)> {
    let mut page: Vec<u8> = Vec::new();
    let mut met = Met::new();
    let mut next = 0;
    let mut take = |count: usize| {
        let mut number = 0u64;
        for _ in 0..count {
            let byte = bytes.get(next / 8)?;
            number = number << 1 | u64::from(byte >> (7 - next % 8) & 1);
            next += 1;
        }
        Some(number)
    };
    loop {
        let code = take(5)? as usize;
        match code {
            0..=25 => {
                meet(&mut met, TEMPLATES[code]);
                let start = page.len();
                for action in TEMPLATES[code].split(' ') {
                    let (kind, size) = action.split_at(1);
                    let size: usize = size.parse().unwrap();
                    if kind == "D" {
                        for _ in 0..size {
                            page.push(take(8)? as u8);
                        }
                        continue;
                    }
                    let index = take(if size == 4 { 9 } else { 8 })? as usize;
                    let ring = if size == 2 { 512 } else { 2048 };
                    // The latest place before the block that has this index.
                    let place = (0..start).rev().find(|at| at % ring == index * size)?;
                    for n in 0..size {
                        page.push(page[place + n]);
                    }
                }
            }
            0x1b => {
                meet(&mut met, "repeat");
                let last = page.len().checked_sub(8)?;
                for _ in 0..=take(6)? {
                    page.extend_from_within(last..last + 8);
                }
            }
            0x1c => {
                meet(&mut met, "zeros");
                page.extend([0; 8]);
            }
            0x1e => {
                meet(&mut met, "end");
                let sum = take(32)?;
                let whole = page.len() == PAGE_SIZE && sum == u64::from(crc(&page));
                return (whole && bytes.len() == next.div_ceil(64) * 8).then_some((page, met));
            }
            _ => return None,
        }
        if page.len() > PAGE_SIZE {
            return None;
        }
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let mut sum = 0u32;
    for byte in bytes {
        sum ^= u32::from(*byte) << 24;
        for _ in 0..8 {
            sum = if sum >> 31 == 1 { sum << 1 ^ 0x04c1_1db7 } else { sum << 1 };
        }
    }
    sum
}
