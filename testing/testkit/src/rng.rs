//! Random numbers that can be had again.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};

/// The seed for a random test: `RAMPACK_SEED` when set (decimal, or hexadecimal after `0x`), else a
/// fresh one. The seed is printed either way, so that a failure can be repeated.
///
/// # Panics
///
/// When `RAMPACK_SEED` is set and is not a number.
pub fn seed(test: &str) -> u64 {
    let seed = match env::var("RAMPACK_SEED") {
        Ok(text) => parse(&text).unwrap_or_else(|| {
            panic!("RAMPACK_SEED={text}: not a number; write it like 42 or 0x2a");
        }),
        // Each RandomState is keyed differently, from the operating system's randomness.
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    // println! is captured with the test's other output and shown when it fails.
    println!("{test}: RAMPACK_SEED={seed:#x} repeats this run");
    let _ = io::stdout().flush();
    seed
}

pub(crate) fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A small generator for tests: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
/// number generators", OOPSLA 2014). The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator with this seed; every seed is as good as any other, zero too.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `bound`; zero when `bound` is zero. The bias of at most `bound / 2^64` does
    /// not matter to a test.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `range`.
    ///
    /// # Panics
    ///
    /// When the range is empty.
    pub fn range(&mut self, range: std::ops::Range<u64>) -> u64 {
        assert!(range.start < range.end, "the empty range {range:?} has no number to give");
        range.start + self.below(range.end - range.start)
    }

    /// True once in `odds` calls, on average; never when `odds` is zero.
    pub fn one_in(&mut self, odds: u64) -> bool {
        odds != 0 && self.below(odds) == 0
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// One of `items`.
    ///
    /// # Panics
    ///
    /// When there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.range(0..items.len() as u64) as usize]
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// A generator of its own for a part of the test, a thread for instance.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}
