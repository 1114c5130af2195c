//! Parses files of /proc and of control groups.

use std::collections::BTreeMap;
use std::fs;

/// Counters by name.
pub type Counters = BTreeMap<String, i64>;

/// The numbers in lines of a name and a number, as in `/proc/vmstat` and `memory.stat`. Other lines
/// are left out.
pub fn numbers(text: &str) -> Counters {
    let pair = |line: &str| {
        let (name, value) = line.split_once([' ', '=', '\t'])?;
        Some((name.trim_end_matches(':').to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// How much each number has grown since `before`.
pub fn growth(now: &Counters, before: &Counters) -> Counters {
    let then = |name: &String| before.get(name).copied().unwrap_or(0);
    now.iter().map(|(name, value)| (name.clone(), value - then(name))).collect()
}

/// The bytes after a name and a colon, in KiB, as in `/proc/meminfo` and `/proc/PID/status`.
pub fn kib(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(rest.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_leaves_the_rest() {
        let text = "cache 12\nhierarchical 99999999999999999999999\n\nx y\nread_bytes: 7\nwb=3\n";
        let numbers = numbers(text);
        let named = ["cache", "read_bytes", "wb"].map(|name| numbers.get(name).copied());
        assert_eq!((named, numbers.len()), ([Some(12), Some(7), Some(3)], 3));
        let before = Counters::from([("cache".to_owned(), 5)]);
        assert_eq!(growth(&numbers, &before).into_values().collect::<Vec<_>>(), [7, 7, 3]);
        assert!(kib("/proc/self/status", "VmRSS") > Some(0));
    }
}
