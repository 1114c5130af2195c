//! Random numbers that a seed repeats.

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::sync::OnceLock;

static DRAWN: OnceLock<u64> = OnceLock::new();

/// The seed for a random test: `RAMPACK_SEED` when set (decimal, or hexadecimal after `0x`), else a
/// fresh one, which is the same for all tests of the process. The function prints the seed in both
/// cases, so that a run can repeat a failure.
///
/// # Panics
///
/// When `RAMPACK_SEED` is set and is not a number.
pub fn seed(test: &str) -> u64 {
    let seed = match env::var("RAMPACK_SEED") {
        Ok(text) => parse(&text).unwrap_or_else(|| {
            panic!("RAMPACK_SEED={text}: not a number; write it like 42 or 0x2a");
        }),
        // The operating system's random numbers key the first RandomState of each process.
        Err(_) => *DRAWN.get_or_init(|| RandomState::new().build_hasher().finish()),
    };
    // The test harness captures println! and shows it when the test fails.
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

/// The generator of random tests, [`fastrand`]'s: the same seed gives the same numbers until that
/// crate changes its algorithm.
#[derive(Clone, Debug)]
pub struct Rng {
    source: fastrand::Rng,
}

impl Rng {
    /// Makes the generator with this seed. Every seed is equally good, even zero.
    pub fn new(seed: u64) -> Rng {
        Rng { source: fastrand::Rng::with_seed(seed) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.source.u64(..)
    }

    /// A number under `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.source.u64(..bound) }
    }

    /// A number in `range`.
    ///
    /// # Panics
    ///
    /// When the range is empty.
    pub fn range(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.source.u64(range)
    }

    /// True once in `odds` calls, on average; never when `odds` is zero.
    pub fn one_in(&mut self, odds: u64) -> bool {
        odds != 0 && self.below(odds) == 0
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.source.fill(bytes);
    }

    /// Picks one of `items`.
    ///
    /// # Panics
    ///
    /// When `items` is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.range(0..items.len() as u64) as usize]
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.source.shuffle(items);
    }

    /// Makes an independent generator for a part of the test, such as a thread.
    pub fn fork(&mut self) -> Rng {
        Rng { source: self.source.fork() }
    }
}
