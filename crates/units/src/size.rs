//! Prints sizes as zramctl does.

use core::fmt;

/// Bytes, printed as zramctl does: `4K`, `1.4M`, `2G`; at most one decimal, and none if it is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Human(pub u64);

/// Shorthand for [`Human`].
#[must_use]
pub const fn human(bytes: u64) -> Human {
    Human(bytes)
}

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [char; 7] = ['B', 'K', 'M', 'G', 'T', 'P', 'E'];
        let mut power = if self.0 == 0 { 0 } else { self.0.ilog2() / 10 };
        let mut tenths = rounded_tenths(self.0, power);
        if tenths >= 10_240 && power < 6 {
            power += 1;
            tenths = rounded_tenths(self.0, power);
        }
        let letter = LETTERS[power as usize];
        let text = if tenths.is_multiple_of(10) {
            alloc::format!("{}{letter}", tenths / 10)
        } else {
            alloc::format!("{}.{}{letter}", tenths / 10, tenths % 10)
        };
        f.pad(&text)
    }
}

fn rounded_tenths(bytes: u64, power: u32) -> u64 {
    let unit = 1u128 << (10 * power);
    ((u128::from(bytes) * 10 + unit / 2) / unit) as u64
}
