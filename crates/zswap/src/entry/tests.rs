extern crate std;

use std::collections::BTreeSet;
use std::vec::Vec;

use super::*;

const CPUS: usize = 4;

fn entries(provider: &dyn MemoryProvider, capacity: u32) -> Entries {
    Entries::new(provider, capacity, CPUS).unwrap()
}

/// All entries that can be taken on a CPU.
fn take_all(entries: &Entries, cpu: Cpu) -> Vec<u32> {
    core::iter::from_fn(|| entries.take(cpu)).map(Word::number).collect()
}

#[test]
fn entries_that_another_cpu_gives_back_are_used_again() {
    let entries = entries(&host::Mmap, 200_000);
    for _ in 0..100_000 {
        let word = entries.take(Cpu(0)).unwrap();
        entries.give_back(Cpu(1), word.number());
    }
    assert!(entries.touched() <= 2 * u64::from(KEPT), "{} were used", entries.touched());
    assert_eq!(entries.unused(), entries.touched(), "all are free");
}

#[test]
fn no_more_entries_are_used_than_pages_come_and_each_cpu_may_keep() {
    let entries = entries(&host::Mmap, 200_000);
    let at_once = 1000;
    for round in 0..100 {
        let words: Vec<Word> =
            (0..at_once).map(|_| entries.take(Cpu(round % 4)).unwrap()).collect();
        let numbers: BTreeSet<u32> = words.iter().map(|word| word.number()).collect();
        assert_eq!(numbers.len(), at_once, "an entry was taken twice");
        for word in words {
            entries.give_back(Cpu((round + 1) % 4), word.number());
        }
    }
    let most = at_once as u64 + CPUS as u64 * u64::from(KEPT);
    assert!(entries.touched() <= most, "{} were used for {at_once} pages", entries.touched());
}

#[test]
fn every_entry_is_found_wherever_it_was_given_back() {
    let entries = entries(&host::Mmap, 1000);
    let all = take_all(&entries, Cpu(0));
    assert_eq!(all.len(), 1000);
    for number in all {
        entries.give_back(Cpu(number % CPUS as u32), number);
    }
    assert_eq!(entries.unused(), 1000);
    let again: BTreeSet<u32> = take_all(&entries, Cpu(2)).into_iter().collect();
    assert_eq!((again.len(), entries.unused()), (1000, 0));
}

#[test]
fn only_provided_entries_are_used_and_freed_ones_come_first() {
    let entries = entries(&host::MmapAhead, 100_000);
    assert_eq!(entries.left(), 0);
    assert!(entries.take(Cpu(0)).is_none(), "none has memory");
    entries.provide(1000);
    let left = entries.left();
    assert!(left >= 1000);
    for _ in 0..10_000 {
        let word = entries.take(Cpu(0)).unwrap();
        entries.give_back(Cpu(1), word.number());
    }
    assert!(entries.left() + 2 * KEPT >= left, "{} of {left} are left", entries.left());
    let all = take_all(&entries, Cpu(3));
    assert_eq!((all.len() as u32, entries.left()), (left, 0), "all that have memory, no others");
}
