//! The reader-writer lock in a word: the `rwlock` and `global-rwlock` schemes of slots.

use std::sync::Arc;

use designs::locks::SharedWaitQueues;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use sync::{LOCKED, WAITED};

use crate::{DEADLOCK, RACE, bounded, every, futex, refused};

/// A manner of locking: the crate's, or a copy with a flaw.
trait Manner: Send + Sync + 'static {
    fn read(&self, word: &AtomicU64);
    fn end_read(&self, word: &AtomicU64);
    fn write(&self, word: &AtomicU64);
    fn end_write(&self, word: &AtomicU64);
}

impl Manner for SharedWaitQueues {
    fn read(&self, word: &AtomicU64) {
        SharedWaitQueues::read(self, word, 7);
    }
    fn end_read(&self, word: &AtomicU64) {
        SharedWaitQueues::end_read(self, word, 7);
    }
    fn write(&self, word: &AtomicU64) {
        SharedWaitQueues::write(self, word, 7);
    }
    fn end_write(&self, word: &AtomicU64) {
        SharedWaitQueues::end_write(self, word, 7);
    }
}

struct World<M> {
    manner: M,
    word: AtomicU64,
    value: UnsafeCell<u64>,
}

// SAFETY: the lock keeps readers and writers apart; loom checks that it does.
unsafe impl<M: Sync> Sync for World<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Send for World<M> {}

impl<M: Manner> World<M> {
    fn load(&self) {
        self.manner.read(&self.word);
        // SAFETY: loom checks that nobody changes it meanwhile.
        let value = self.value.with(|value| unsafe { *value });
        assert!(value < 5);
        self.manner.end_read(&self.word);
    }

    fn add(&self) {
        self.manner.write(&self.word);
        // SAFETY: loom checks that this is the only access.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.manner.end_write(&self.word);
    }
}

type Act<M> = fn(&World<M>);

/// Each of `threads` does what its list says, the first of them this one; `writes` of it add.
fn run<M: Manner>(manner: M, threads: &[&'static [Act<M>]], writes: u64) {
    let world = World { manner, word: AtomicU64::new(0), value: UnsafeCell::new(0) };
    let world = Arc::new(world);
    let others: Vec<_> = threads[1..]
        .iter()
        .map(|acts| {
            let (world, acts) = (world.clone(), *acts);
            thread::spawn(move || acts.iter().for_each(|act| act(&world)))
        })
        .collect();
    threads[0].iter().for_each(|act| act(&world));
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
    assert_eq!(world.word.load(Ordering::Relaxed), 0, "the word is left wrong");
    // SAFETY: loom checks that the last one's addition is ordered before this.
    world.value.with(|value| assert_eq!(unsafe { *value }, writes));
}

type Ours = World<SharedWaitQueues>;

#[test]
fn a_writer_and_a_reader_exclude_each_other() {
    every(|| run(SharedWaitQueues::default(), &[&[Ours::add, Ours::load], &[Ours::load]], 1));
    bounded(3, || {
        run(SharedWaitQueues::default(), &[&[Ours::add, Ours::add], &[Ours::load, Ours::add]], 3);
    });
}

#[test]
fn two_readers_and_a_writer_all_finish() {
    bounded(3, || {
        run(SharedWaitQueues::default(), &[&[Ours::add], &[Ours::load], &[Ours::load]], 1)
    });
}

#[test]
fn two_writers_and_a_reader_all_finish() {
    bounded(3, || {
        run(SharedWaitQueues::default(), &[&[Ours::load], &[Ours::add], &[Ours::add]], 2)
    });
}

#[test]
fn readers_read_together() {
    every(|| {
        let (queues, word) = (SharedWaitQueues::default(), AtomicU64::new(0));
        queues.read(&word, 7);
        queues.read(&word, 7);
        queues.end_read(&word, 7);
        queues.end_read(&word, 7);
        assert_eq!(word.load(Ordering::Relaxed), 0);
    });
}

/// What is wrong with the copy.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// The last reader to leave does not look whether somebody waits.
    LeavesQuietly,
    /// Readers who leave release nothing.
    NoRelease,
    /// Writers who leave release nothing.
    NoReleaseOfWriters,
    /// Who comes in acquires nothing.
    NoAcquire,
    /// A writer looks whether anybody writes, not whether anybody reads.
    IgnoresReaders,
}

struct Copy {
    flaw: Flaw,
    queue: AtomicU32,
}

impl Copy {
    fn new(flaw: Flaw) -> Copy {
        Copy { flaw, queue: AtomicU32::new(0) }
    }

    fn take(&self, word: &AtomicU64, admits: impl Fn(u64) -> bool, taken: impl Fn(u64) -> u64) {
        loop {
            let ticket = self.queue.load(Ordering::Acquire);
            let seen = word.load(Ordering::Relaxed);
            let swap = |next, order| word.compare_exchange(seen, next, order, Ordering::Relaxed);
            let acquire = match self.flaw {
                Flaw::NoAcquire => Ordering::Relaxed,
                _ => Ordering::Acquire,
            };
            if admits(seen) {
                if swap(taken(seen), acquire).is_ok() {
                    return;
                }
            } else if seen & WAITED != 0 || swap(seen | WAITED, Ordering::Relaxed).is_ok() {
                futex::wait(&self.queue, ticket);
            }
        }
    }

    fn open(&self) {
        self.queue.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.queue);
    }
}

impl Manner for Copy {
    fn read(&self, word: &AtomicU64) {
        self.take(word, |seen| seen & (LOCKED | WAITED) == 0, |seen| seen + 1);
    }
    fn end_read(&self, word: &AtomicU64) {
        let order =
            if self.flaw == Flaw::NoRelease { Ordering::Relaxed } else { Ordering::Release };
        let last = word.fetch_sub(1, order) == WAITED | 1;
        if last && self.flaw != Flaw::LeavesQuietly {
            let cleared = word.compare_exchange(WAITED, 0, Ordering::Relaxed, Ordering::Relaxed);
            if cleared.is_ok() {
                self.open();
            }
        }
    }
    fn write(&self, word: &AtomicU64) {
        let others = if self.flaw == Flaw::IgnoresReaders { LOCKED } else { !WAITED };
        self.take(word, |seen| seen & others == 0, |seen| seen | LOCKED);
    }
    fn end_write(&self, word: &AtomicU64) {
        let order = match self.flaw {
            Flaw::NoReleaseOfWriters => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        if word.swap(0, order) & WAITED != 0 {
            self.open();
        }
    }
}

fn copies(flaw: Flaw) {
    type Its = World<Copy>;
    run(Copy::new(flaw), &[&[Its::add], &[Its::load]], 1);
}

#[test]
fn a_faithful_copy_passes() {
    every(|| copies(Flaw::None));
}

#[test]
fn leaving_without_waking_is_found() {
    refused(DEADLOCK, || copies(Flaw::LeavesQuietly));
}

#[test]
fn leaving_without_release_is_found() {
    refused(RACE, || copies(Flaw::NoRelease));
}

#[test]
fn ending_a_write_without_release_is_found() {
    refused(RACE, || copies(Flaw::NoReleaseOfWriters));
}

#[test]
fn coming_in_without_acquire_is_found() {
    refused(RACE, || copies(Flaw::NoAcquire));
}

#[test]
fn writing_beside_readers_is_found() {
    refused(RACE, || copies(Flaw::IgnoresReaders));
}
