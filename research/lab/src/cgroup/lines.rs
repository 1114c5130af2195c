//! Parses files of the kernel whose lines are a name and a number.

use std::collections::HashMap;

/// Parses lines of a name and a number, as in `/proc/vmstat` and `memory.stat`.
pub fn numbers(text: &str) -> HashMap<&str, u64> {
    let pair = |line| -> Option<(&str, u64)> {
        let (name, value): (&str, &str) = str::split_once(line, ' ')?;
        Some((name, value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}
