extern crate std;

use std::vec::Vec;

use super::*;
use crate::entry::Entries;

const CPUS: usize = 4;

fn joined(lru: &Lru, entries: &Entries, ages: &Ages, cpu: u32) -> u32 {
    let number = entries.take(Cpu(cpu)).expect("an entry").number();
    lru.join(entries, ages, Cpu(cpu), number);
    number
}

/// The entries from the oldest on, each of which leaves.
fn leaving(lru: &Lru, entries: &Entries, ages: &Ages) -> Vec<u32> {
    let mut all = Vec::new();
    while lru.count() > 0 {
        let mut found = None;
        lru.oldest(entries, ages, (1, u64::MAX), |word| found = Some(word.number()));
        let number = found.expect("none was read");
        lru.leave(entries, number);
        all.push(number);
    }
    all
}

#[test]
fn the_oldest_leaves_first_however_long_it_was_there() {
    // As many ages as pass when 5 * 10^8 entries join, and many times more.
    for passed in [1, AGES / 2 - 1, AGES / 2 + 1, AGES - 1, AGES, AGES + 1, 1000 * AGES + 5] {
        let (lru, ages) = (Lru::new(CPUS), Ages::default());
        let entries = Entries::new(&host::Mmap, 100, CPUS).expect("memory");
        let mut all = Vec::new();
        for cpu in [2, 0, 1, 2] {
            all.push(joined(&lru, &entries, &ages, cpu));
            ages.now.fetch_add(1, Ordering::Relaxed);
        }
        ages.now.fetch_add(passed, Ordering::Relaxed);
        for cpu in [3, 3] {
            all.push(joined(&lru, &entries, &ages, cpu));
            ages.now.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(leaving(&lru, &entries, &ages), all, "{passed} ages");
    }
}

/// A call visits some of the entries, and the next ones go on.
#[test]
fn a_search_ends_after_some_visits() {
    const READ: u32 = 10_000;
    let (lru, ages) = (Lru::new(CPUS), Ages::default());
    let entries = Entries::new(&host::Mmap, 2 * READ, CPUS).expect("memory");
    for n in 0..READ {
        let number = joined(&lru, &entries, &ages, n % 2);
        entries.refer(number);
    }
    let last = joined(&lru, &entries, &ages, 0);
    let (mut found, mut all) = (None, 0);
    while found.is_none() {
        let mut one = |word: Word| found = Some(word.number());
        let visited = lru.oldest(&entries, &ages, (1, 1000), &mut one);
        assert!((1..=1000).contains(&visited), "{visited} visits");
        all += visited;
    }
    assert_eq!(found, Some(last));
    assert!(all <= u64::from(READ) + 1, "{all} visits in all");
}
