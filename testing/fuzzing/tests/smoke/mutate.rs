//! Inputs for a target: most are damaged well-formed inputs, some are noise.

use testkit::Rng;

/// The largest input in bytes.
const LONGEST: usize = 8192;

/// Makes the next input.
pub fn input(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    if rng.one_in(8) {
        let mut noise = vec![0; rng.below(300) as usize];
        rng.fill(&mut noise);
        return noise;
    }
    let mut input = rng.pick(seeds).clone();
    for _ in 0..rng.below(5) {
        mutate(rng, &mut input, seeds);
    }
    input.truncate(LONGEST);
    input
}

fn mutate(rng: &mut Rng, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let length = input.len() as u64;
    let at = rng.below(length) as usize;
    match rng.below(8) {
        0 if length > 0 => input[at] ^= 1 << rng.below(8),
        1 if length > 0 => input[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', b'9']),
        2 if length > 0 => input[at] = rng.next_u64() as u8,
        // Numbers at the edges of their types, in network byte order.
        3 if length >= 4 => {
            let number: u32 = *rng.pick(&[
                0,
                1,
                0x7fff_ffff,
                0x8000_0000,
                u32::MAX,
                4096,
                1 << 25,
                length as u32,
            ]);
            let at = at.min(input.len() - 4);
            input[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        4 => input.truncate(at),
        5 => {
            let mut noise = vec![0; rng.range(1..20) as usize];
            rng.fill(&mut noise);
            input.splice(at..at, noise);
        }
        // Repeats a part of the input.
        6 if length > 0 => {
            let end = at + rng.below(length - at as u64 + 1) as usize;
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        // Joins the beginning of this input with the end of another.
        _ => {
            let other = rng.pick(seeds);
            let from = rng.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
