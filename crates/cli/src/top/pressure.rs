//! Memory pressure, as the kernel measures it (`/proc/pressure/memory`).

use std::fs;

/// How much of the last ten seconds programs waited for memory, in percent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pressure {
    /// One of them at least.
    pub(super) some: f64,
    /// All that had something to do.
    pub(super) full: f64,
}

/// The pressure now; `None` where the kernel does not tell.
pub(super) fn now() -> Option<Pressure> {
    parse(&fs::read_to_string("/proc/pressure/memory").ok()?)
}

fn parse(text: &str) -> Option<Pressure> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
    };
    Some(Pressure { some: of("some ")?, full: of("full ")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        let text = "some avg10=12.50 avg60=0.00 avg300=0.00 total=73815315\n\
                    full avg10=3.25 avg60=0.00 avg300=0.00 total=21138567\n";
        assert_eq!(parse(text), Some(Pressure { some: 12.5, full: 3.25 }));
        assert_eq!(parse("some avg10=12.50\n"), None);
        assert_eq!(parse(""), None);
    }
}
