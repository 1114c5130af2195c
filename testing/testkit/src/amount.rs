//! How much a test does.

use std::env;
use std::str::FromStr;

/// Whether the run may take long: `RAMPACK_LONG`, which `cargo xtask test --long` sets.
pub fn is_long() -> bool {
    env::var_os("RAMPACK_LONG").is_some()
}

/// How many random cases a test tries: `all` in a long run, else half of them. Each run draws
/// another seed, so that many runs try more.
pub fn cases(all: usize) -> usize {
    if is_long() { all } else { all.div_ceil(2) }
}

/// The number that the variable gives, else `usual`.
///
/// # Panics
///
/// When the variable is no such number.
pub fn asked<T: FromStr>(variable: &str, usual: T) -> T {
    let Ok(text) = env::var(variable) else { return usual };
    text.parse().unwrap_or_else(|_| panic!("{variable}={text}: it must be a whole number"))
}
