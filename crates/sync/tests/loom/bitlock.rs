//! The lock in the top bits of a word.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use sync::{LOCKED, WAITED, WaitQueues};

use crate::{DEADLOCK, RACE, bounded, every, refused};

/// Words, what each of them guards, and the wait queues to wait in.
struct Shared {
    queues: WaitQueues,
    words: [AtomicU64; 2],
    sums: [UnsafeCell<u64>; 2],
}

// SAFETY: the words guard the sums; loom checks that they do.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// Bits of an owner at both ends of what is its own, above the count in the low byte.
const OWNERS: u64 = 1 << 61 | 1 << 8;

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            queues: WaitQueues::default(),
            words: [AtomicU64::new(OWNERS), AtomicU64::new(OWNERS)],
            sums: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// Adds one to a word and to what it guards. All words wait in the same wait queue.
    fn add(&self, which: usize) {
        let word = &self.words[which];
        let owned = self.queues.lock(word, 7);
        assert_eq!(owned & (LOCKED | WAITED), 0, "the lock's bits are not the owner's");
        assert_eq!(owned & OWNERS, OWNERS, "the owner's bits survive");
        // SAFETY: loom checks that this is the only access.
        self.sums[which].with_mut(|sum| unsafe {
            assert_eq!(*sum, owned - OWNERS, "the word is what the last owner left");
            *sum += 1;
        });
        self.queues.unlock(word, 7, owned + 1);
    }

    fn expect(&self, sums: [u64; 2]) {
        for (word, sum) in self.words.iter().zip(sums) {
            assert_eq!(word.load(Ordering::Relaxed), OWNERS + sum, "unlocked, with nobody waiting");
        }
    }
}

/// Runs `add` for each list of words in a thread of its own, the first in this one.
fn run<const N: usize>(threads: [&'static [usize]; N]) -> Arc<Shared> {
    let shared = Shared::new();
    let others: Vec<_> = threads[1..]
        .iter()
        .map(|words| {
            let (shared, words) = (shared.clone(), *words);
            thread::spawn(move || words.iter().for_each(|word| shared.add(*word)))
        })
        .collect();
    threads[0].iter().for_each(|word| shared.add(*word));
    for other in others {
        other.join().expect("no thread of the model panics");
    }
    shared
}

#[test]
fn two_threads_exclude_each_other_and_both_finish() {
    every(|| run([&[0, 0], &[0, 0]]).expect([4, 0]));
}

#[test]
fn three_threads_exclude_each_other_and_all_finish() {
    bounded(3, || run([&[0], &[0], &[0]]).expect([3, 0]));
}

#[test]
fn two_words_may_share_a_room() {
    every(|| run([&[0, 1], &[1, 0]]).expect([2, 2]));
    bounded(2, || run([&[0, 1], &[0], &[1]]).expect([2, 2]));
}

#[test]
fn waiters_marks_do_not_disturb_the_holder() {
    every(|| {
        let shared = Shared::new();
        let owned = shared.queues.lock(&shared.words[0], 7);
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.add(0))
        };
        let held = shared.words[0].load(Ordering::Relaxed);
        assert_eq!(held & !WAITED, owned | LOCKED);
        shared.queues.unlock(&shared.words[0], 7, owned);
        other.join().expect("no thread of the model panics");
        shared.expect([1, 0]);
    });
}

/// A copy of the bit lock, with room for flaws.
mod copy {
    use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use sync::{LOCKED, WAITED};

    use crate::futex;

    /// What is wrong with it.
    #[derive(Clone, Copy, PartialEq)]
    pub(super) enum Flaw {
        None,
        /// Unlocking overwrites the mark of those who sleep, unseen.
        LosesWaited,
        /// Unlocking does not release what was written under the lock.
        NoRelease,
        /// Locking does not acquire what was written before.
        NoAcquire,
        /// Who waits looks at the word first and takes the ticket then.
        LateTicket,
        /// Waiters mark the word by a plain store.
        MarkByStore,
    }

    pub(super) struct Copy {
        pub(super) flaw: Flaw,
        pub(super) queue: AtomicU32,
    }

    impl Copy {
        pub(super) fn lock(&self, word: &AtomicU64) -> u64 {
            loop {
                let early = self.queue.load(Ordering::Acquire);
                let seen = word.load(Ordering::Relaxed);
                if seen & LOCKED == 0 {
                    let order = match self.flaw {
                        Flaw::NoAcquire => Ordering::Relaxed,
                        _ => Ordering::Acquire,
                    };
                    if self.swap(word, seen, seen | LOCKED, order) {
                        return seen & !(LOCKED | WAITED);
                    }
                    continue;
                }
                let marked = seen | WAITED;
                if self.flaw == Flaw::MarkByStore {
                    word.store(marked, Ordering::Relaxed);
                } else if seen != marked && !self.swap(word, seen, marked, Ordering::Relaxed) {
                    continue;
                }
                let late = self.flaw == Flaw::LateTicket;
                let ticket = if late { self.queue.load(Ordering::Acquire) } else { early };
                futex::wait(&self.queue, ticket);
            }
        }

        fn swap(&self, word: &AtomicU64, seen: u64, next: u64, order: Ordering) -> bool {
            word.compare_exchange(seen, next, order, Ordering::Relaxed).is_ok()
        }

        pub(super) fn unlock(&self, word: &AtomicU64, next: u64) {
            let order =
                if self.flaw == Flaw::NoRelease { Ordering::Relaxed } else { Ordering::Release };
            let was = if self.flaw == Flaw::LosesWaited {
                let was = word.load(Ordering::Relaxed);
                word.store(next, order);
                was
            } else {
                word.swap(next, order)
            };
            if was & WAITED != 0 {
                self.queue.fetch_add(1, Ordering::Release);
                futex::wake_all(&self.queue);
            }
        }
    }
}

fn copies_add(flaw: copy::Flaw) {
    struct Guarded {
        lock: copy::Copy,
        word: AtomicU64,
        sum: UnsafeCell<u64>,
    }
    // SAFETY: that the lock excludes is what loom is to judge.
    unsafe impl Sync for Guarded {}
    // SAFETY: as above.
    unsafe impl Send for Guarded {}

    let lock = copy::Copy { flaw, queue: loom::sync::atomic::AtomicU32::new(0) };
    let guarded = Guarded { lock, word: AtomicU64::new(0), sum: UnsafeCell::new(0) };
    let guarded = Arc::new(guarded);
    let add = |guarded: &Guarded| {
        let owned = guarded.lock.lock(&guarded.word);
        // SAFETY: loom checks that this is the only access.
        guarded.sum.with_mut(|sum| unsafe { *sum += 1 });
        guarded.lock.unlock(&guarded.word, owned + 1);
    };
    let other = {
        let guarded = guarded.clone();
        thread::spawn(move || add(&guarded))
    };
    add(&guarded);
    other.join().expect("no thread of the model panics");
    let word = guarded.word.load(Ordering::Relaxed);
    assert_eq!(word, 2, "the word is left wrong");
}

#[test]
fn a_faithful_copy_passes() {
    every(|| copies_add(copy::Flaw::None));
}

#[test]
fn losing_the_mark_of_sleepers_is_found() {
    refused(DEADLOCK, || copies_add(copy::Flaw::LosesWaited));
}

#[test]
fn unlocking_without_release_is_found() {
    refused(RACE, || copies_add(copy::Flaw::NoRelease));
}

#[test]
fn locking_without_acquire_is_found() {
    refused(RACE, || copies_add(copy::Flaw::NoAcquire));
}

#[test]
fn a_ticket_taken_too_late_is_found() {
    refused(DEADLOCK, || copies_add(copy::Flaw::LateTicket));
}

#[test]
fn marking_by_a_plain_store_is_found() {
    refused(&["the word is left wrong", "deadlock"], || copies_add(copy::Flaw::MarkByStore));
}
