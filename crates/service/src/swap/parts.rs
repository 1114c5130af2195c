//! Splits a swap device into parts. Each is a swap space of its own, and the kernel fills one after
//! the other.
//!
//! The kernel tells a block device of freed swap by clusters of 512 pages, once a whole cluster is
//! free. Before Linux 6.18 it prefers clusters that were never used, as long as there are any. So a
//! device fills, up to its size, with pages that will never be read again, and they take the memory
//! that other pages need. With several swap spaces of descending priorities the kernel uses up one,
//! with its partly free clusters, before it goes on to the next. So at most one part is held in
//! vain.

use std::ops::Range;

/// The most parts of a device.
const MOST: u64 = 8;
/// The fewest pages of a part: 64 MiB.
const LEAST: u64 = 16 << 10;
/// The swap spaces that every kernel has room for (`MAX_SWAPFILES`: 23 to 32, by its
/// configuration). A device leaves as many of them free as it takes.
const KERNEL_HAS: u64 = 22;

/// The parts of a device of `pages`, as ranges of pages. `others` swap spaces exist already.
pub fn of(pages: u64, others: u64) -> Vec<Range<u64>> {
    let room = KERNEL_HAS.saturating_sub(others) / 2;
    cut(pages, (pages / LEAST).min(MOST).min(room).max(1))
}

/// A device of `pages` in `count` parts; at least one.
pub fn cut(pages: u64, count: u64) -> Vec<Range<u64>> {
    let count = count.max(1);
    let at = |part: u64| pages / count * part + (pages % count) * part / count;
    (0..count).map(|part| at(part)..at(part + 1)).collect()
}

/// The priority of part `part` of `count`, for a device of `priority`; at least `dead` if that is
/// given. The first part is used first. Without a priority the kernel uses the parts in the same
/// order, after all swap space that it has.
pub fn priority(
    priority: Option<u16>,
    part: usize,
    count: usize,
    dead: Option<u16>,
) -> Option<u16> {
    let (part, count) = (u16::try_from(part).ok()?, u16::try_from(count).ok()?);
    let least = dead.unwrap_or(0).saturating_add(count - 1).min(host::HIGHEST_PRIORITY);
    let wanted = priority.or(dead)?;
    Some(wanted.max(least).saturating_sub(part))
}

/// A note if the kernel swaps to some of the parts of a device only, and so to fewer bytes.
pub fn lack(name: &str, (active, all): (usize, usize), (bytes, of): (u64, u64)) -> Option<String> {
    (0 < active && active < all).then(|| {
        let (bytes, of) = (units::human(bytes), units::human(of));
        format!(
            "the kernel swaps to {active} of the {all} parts of {name}, {bytes} of {of}: the \
             others were swapped off; `swap off {name}`, then `swap on`, makes it whole"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_device_and_none_is_small() {
        for pages in [10, 1000, LEAST - 1, LEAST, 2 * LEAST - 1, 5 * LEAST + 7, 1 << 18, 1 << 32] {
            for others in [0, 3, 8, 16, 22, 100] {
                let parts = of(pages, others);
                assert!(!parts.is_empty() && parts.len() as u64 <= MOST, "{pages} {others}");
                assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, pages));
                assert_eq!(cut(pages, parts.len() as u64), parts);
                assert!(parts.windows(2).all(|two| two[0].end == two[1].start), "{parts:?}");
                let long = |part: &Range<u64>| part.end - part.start >= LEAST;
                assert!(parts.len() == 1 || parts.iter().all(long), "{parts:?}");
            }
        }
        assert_eq!(of(1 << 18, 0).len(), 8);
        assert_eq!(of(1 << 18, 16).len(), 3);
        assert_eq!(of(1 << 18, 40).len(), 1);
    }

    #[test]
    fn the_first_part_is_used_first_and_all_before_the_dead() {
        let all = |priority_of, dead| -> Vec<Option<u16>> {
            (0..4).map(|part| priority(priority_of, part, 4, dead)).collect()
        };
        assert_eq!(all(Some(100), None), [Some(100), Some(99), Some(98), Some(97)]);
        assert_eq!(all(Some(1), None), [Some(3), Some(2), Some(1), Some(0)]);
        assert_eq!(all(Some(100), Some(101)), [Some(104), Some(103), Some(102), Some(101)]);
        assert_eq!(all(None, Some(7)), [Some(10), Some(9), Some(8), Some(7)]);
        assert_eq!(all(None, None), [None; 4]);
        assert_eq!(priority(Some(5), 0, 1, None), Some(5));
    }

    #[test]
    fn a_device_that_is_smaller_than_it_was_made_says_so() {
        let lack = |active, all| lack("swap0", (active, all), (2 << 30, 8 << 30));
        let note = lack(2, 8).unwrap();
        assert!(note.contains("2 of the 8 parts of swap0, 2G of 8G"), "{note}");
        for (active, all) in [(8, 8), (1, 1), (0, 8), (0, 1)] {
            assert_eq!(lack(active, all), None, "{active} of {all}");
        }
    }
}
