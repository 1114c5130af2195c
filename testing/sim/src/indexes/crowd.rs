//! Tests with many threads on one index.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use testkit::Rng;
use units::Cpu;
use zswap::{Index, Word};

use super::{Make, Numbers, word};
use crate::suite::together;

const THREADS: usize = 4;
const ROUNDS: usize = 6;
const CALLS: usize = 4000;
/// The pages of an area, which has several parts.
const PAGES: u64 = 1 << 18;

type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Prints the seed if `play` panics.
fn seeded(seed: u64, play: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(play)) {
        eprintln!("drawn from {seed:#x}");
        resume_unwind(payload);
    }
}

/// The offsets where threads meet: neighbours, offsets on both sides of a node's or a part's edge,
/// and offsets alone in their nodes.
const MEETING: [u64; 10] = [7, 8, 63, 64, 16_383, 16_384, 70_000, 100_000, 200_000, PAGES - 1];

/// Threads insert entries, replace them, and remove them by offset, by word and by range. The
/// thread that gets a word owns its entry, and no other thread gets the word.
///
/// # Panics
/// When a word comes out twice, or is lost.
pub fn owners(seed: u64, make: Make<'_>) {
    let mut rng = Rng::new(seed);
    seeded(seed, || {
        let entries = 64;
        let index = make(PAGES, entries);
        let numbers = Numbers::new(entries);
        for _ in 0..ROUNDS {
            let tasks = (0..THREADS).map(|n| {
                let (index, numbers, mut rng) = (&*index, &numbers, rng.fork());
                let task = move || (0..CALLS).for_each(|_| own(index, numbers, n, &mut rng));
                Box::new(task) as Task<'_>
            });
            together(tasks.collect(), &thread::yield_now);
            index.validate();
            assert_eq!(index.count(), numbers.with_index(), "entries are lost, or there are more");
        }
        index.drain(Cpu(0), 0..PAGES, &mut |_, word| numbers.give(word));
        assert_eq!(numbers.with_index(), 0, "entries are lost");
        index.validate();
        assert_eq!(index.bytes(), 0, "nodes are lost");
    });
}

/// Makes one random call for one of the threads.
fn own(index: &dyn Index, numbers: &Numbers, thread: usize, rng: &mut Rng) {
    let cpu = Cpu(thread as u32);
    let offset = *rng.pick(&MEETING);
    match rng.below(8) {
        0..4 => {
            let Some(word) = numbers.take() else { return };
            match index.insert(cpu, offset, word) {
                Ok(displaced) => displaced.into_iter().for_each(|old| numbers.give(old)),
                Err(_) => numbers.give(word),
            }
        }
        4 => index.remove(cpu, offset).into_iter().for_each(|word| numbers.give(word)),
        5 | 6 => {
            if let Some(word) = index.get(cpu, offset)
                && index.remove_if(cpu, offset, word)
            {
                numbers.give(word);
            }
        }
        _ => {
            let end = offset + 1 + rng.below(PAGES - offset);
            let mut before = None;
            index.drain(cpu, offset..end, &mut |at, word| {
                assert!((offset..end).contains(&at), "{at} was drained with {offset}..{end}");
                assert!(before < Some(at), "{at} was drained after {before:?}");
                before = Some(at);
                numbers.give(word);
            });
        }
    }
}

/// Lookups always find untouched entries, and unused offsets stay empty, while other threads insert
/// and remove entries beside them and nodes come and go.
///
/// # Panics
/// When a lookup returns anything else.
pub fn neighbours(seed: u64, make: Make<'_>) {
    // An entry is alone in its node, or with others, or beside an unused offset.
    let still: Vec<u64> = (0..8).map(|n| n * 32_768 + n * 61).collect();
    let mut rng = Rng::new(seed);
    seeded(seed, || {
        let index = make(PAGES, 1000);
        for (n, offset) in (1..).zip(&still) {
            index.insert(Cpu(0), *offset, word(n, 1)).expect("there is memory");
        }
        let changers = AtomicUsize::new(THREADS / 2);
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for n in 0..THREADS / 2 {
            let (index, still, changers, mut rng) = (&*index, &still, &changers, rng.fork());
            tasks.push(Box::new(move || {
                let cpu = Cpu(n as u32);
                let number = 100 + n as u32;
                for life in 0..(ROUNDS * CALLS) as u32 {
                    // One thread uses the odd offsets, the other the even ones, and no thread the
                    // last but one.
                    let beside = rng.pick(still) + 2 + n as u64 + 2 * rng.below(20);
                    let offset = if rng.one_in(2) { beside } else { beside + 4096 };
                    let displaced = index.insert(cpu, offset, word(number, life));
                    assert_eq!(displaced.expect("there is memory"), None, "at {offset}");
                    assert!(index.remove_if(cpu, offset, word(number, life)), "at {offset}");
                }
                changers.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        for n in 0..THREADS / 2 {
            let (index, still, changers) = (&*index, &still, &changers);
            tasks.push(Box::new(move || {
                while changers.load(Ordering::Relaxed) > 0 {
                    for (number, offset) in (1..).zip(still) {
                        let cpu = Cpu(n as u32);
                        let found = index.get(cpu, *offset);
                        assert_eq!(found, Some(word(number, 1)), "page {offset}, never touched");
                        let empty = index.get(cpu, offset + 1);
                        assert_eq!(empty, None, "page {}, never used", offset + 1);
                    }
                }
            }));
        }
        together(tasks, &thread::yield_now);
        index.validate();
        assert_eq!(index.count(), still.len() as u64);
    });
}

/// An offset that one thread changes and other threads read.
#[derive(Default)]
struct Watched {
    /// Changes begun.
    begun: AtomicU32,
    /// Changes made.
    made: AtomicU32,
}

/// One thread changes each offset and other threads read it. The changes of an offset are numbered:
/// of three changes one inserts a word of that life, one replaces it, and one removes it. A lookup
/// returns the state after a change that began before the lookup ended. This change is no older
/// than the last one made before the lookup began, and no older than any that the reader has seen.
///
/// # Panics
/// When a lookup returns anything else.
pub fn versions(seed: u64, make: Make<'_>) {
    let mut rng = Rng::new(seed);
    seeded(seed, || {
        let index = make(PAGES, 1000);
        let watched: Vec<Watched> = MEETING.iter().map(|_| Watched::default()).collect();
        let changers = AtomicUsize::new(THREADS / 2);
        let mut tasks: Vec<Task<'_>> = Vec::new();
        for n in 0..THREADS / 2 {
            let (index, watched, changers, mut rng) = (&*index, &watched, &changers, rng.fork());
            tasks.push(Box::new(move || {
                for _ in 0..ROUNDS * CALLS {
                    let which = rng.below((MEETING.len() / 2) as u64) as usize * 2 + n;
                    change(index, n, which, &watched[which], &mut rng);
                }
                changers.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        for n in 0..THREADS / 2 {
            let (index, watched, changers, mut rng) = (&*index, &watched, &changers, rng.fork());
            tasks.push(Box::new(move || {
                let mut seen = [0; MEETING.len()];
                while changers.load(Ordering::Relaxed) > 0 {
                    let which = rng.below(MEETING.len() as u64) as usize;
                    look(index, n, which, &watched[which], &mut seen[which]);
                }
            }));
        }
        together(tasks, &thread::yield_now);
        index.validate();
    });
}

/// The word at the offset after change `change`.
fn state(which: usize, change: u32) -> Option<Word> {
    let kind = change % 3;
    (kind != 0).then(|| word(2 * which as u32 + kind, change))
}

fn change(index: &dyn Index, thread: usize, which: usize, watched: &Watched, rng: &mut Rng) {
    let (cpu, offset) = (Cpu(thread as u32), MEETING[which]);
    let last = watched.made.load(Ordering::Relaxed);
    let (there, next) = (state(which, last), last + 1);
    // Release pairs with the Acquire in `look`.
    watched.begun.store(next, Ordering::Release);
    let got = match (state(which, next), there) {
        (Some(word), _) => index.insert(cpu, offset, word).expect("there is memory"),
        (None, Some(word)) if rng.one_in(2) => index.remove_if(cpu, offset, word).then_some(word),
        (None, _) => index.remove(cpu, offset),
    };
    assert_eq!(got, there, "page {offset} was changed by nobody else");
    // Release pairs with the Acquire in `look`.
    watched.made.store(next, Ordering::Release);
}

fn look(index: &dyn Index, thread: usize, which: usize, watched: &Watched, seen: &mut u32) {
    // Acquire pairs with the Release in `change`: the changes made so far are visible.
    let oldest = watched.made.load(Ordering::Acquire).max(*seen);
    let found = index.get(Cpu(thread as u32), MEETING[which]);
    // Acquire pairs with the Release in `change`. The change that the lookup found began before.
    let newest = watched.begun.load(Ordering::Acquire);
    let change = (oldest..=newest).find(|change| state(which, *change) == found);
    assert!(
        change.is_some(),
        "page {} gives {found:?}, but it was in states {oldest} to {newest}, which is {:?} \
         at first",
        MEETING[which],
        state(which, oldest)
    );
    *seen = change.unwrap_or(*seen);
}
