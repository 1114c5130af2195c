//! The reader-writer lock in a word: the `rwlock` and `global-rwlock` schemes of slots.

use std::sync::Arc;

use designs::locks::{RwLock, SharedWaitQueues};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use sync::{LOCKED, WAITED};

use crate::{DEADLOCK, RACE, at_once, bounded, every, found, futex};

/// A manner of locking: the crate's, or a copy with a flaw.
trait Manner: Send + Sync + 'static {
    fn reading(&self, work: &mut dyn FnMut());
    fn writing(&self, work: &mut dyn FnMut());
}

struct World<M> {
    manner: M,
    value: UnsafeCell<u64>,
}

// SAFETY: the lock keeps readers and writers apart; loom checks that it does.
unsafe impl<M: Sync> Sync for World<M> {}
// SAFETY: as above.
unsafe impl<M: Send> Send for World<M> {}

impl<M: Manner> World<M> {
    fn load(&self) {
        self.manner.reading(&mut || {
            // SAFETY: loom checks that nobody changes it meanwhile.
            let value = self.value.with(|value| unsafe { *value });
            assert!(value < 5);
        });
    }

    fn add(&self) {
        self.manner.writing(&mut || {
            // SAFETY: loom checks that this is the only access.
            self.value.with_mut(|value| unsafe { *value += 1 });
        });
    }
}

type Act<M> = fn(&World<M>);

/// Each of `threads` does what its list says, the first of them this one; `writes` of it add.
fn checked<M: Manner>(manner: M, threads: &[&'static [Act<M>]], writes: u64) -> Arc<World<M>> {
    let world = Arc::new(World { manner, value: UnsafeCell::new(0) });
    at_once(&world, threads, |world, acts: &[Act<M>]| acts.iter().for_each(|act| act(world)));
    // Whoever left the lock wrong is found here: it cannot be had alone.
    world.add();
    // SAFETY: loom checks that the last one's addition is ordered before this.
    world.value.with(|value| assert_eq!(unsafe { *value }, writes + 1));
    world
}

/// A lock, and the word that it is in.
struct InWord<L> {
    lock: L,
    word: AtomicU64,
}

type Ours = World<InWord<SharedWaitQueues>>;

impl Manner for InWord<SharedWaitQueues> {
    fn reading(&self, work: &mut dyn FnMut()) {
        self.lock.read(&self.word, 7);
        work();
        self.lock.end_read(&self.word, 7);
    }
    fn writing(&self, work: &mut dyn FnMut()) {
        self.lock.write(&self.word, 7);
        work();
        self.lock.end_write(&self.word, 7);
    }
}

fn run<L: Send + Sync + 'static>(lock: L, threads: &[&'static [fn(&World<InWord<L>>)]], writes: u64)
where
    InWord<L>: Manner,
{
    let world = checked(InWord { lock, word: AtomicU64::new(0) }, threads, writes);
    assert_eq!(world.manner.word.load(Ordering::Relaxed), 0, "the word is left wrong");
}

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

#[test]
fn tries_come_through_only_where_they_may() {
    every(|| {
        let lock = Arc::new(RwLock::new(0));
        let other = lock.clone();
        let writer = thread::spawn(move || {
            if let Some(mut held) = other.try_write() {
                *held += 1;
            }
        });
        if let Some(held) = lock.try_read() {
            assert!(*held < 2);
        }
        writer.join().expect("no thread of the model panics");
        assert!(lock.try_write().is_some(), "nobody is left, whoever came in vain");
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

impl Manner for InWord<Copy> {
    fn reading(&self, work: &mut dyn FnMut()) {
        let (lock, word) = (&self.lock, &self.word);
        lock.take(word, |seen| seen & (LOCKED | WAITED) == 0, |seen| seen + 1);
        work();
        let order =
            if lock.flaw == Flaw::NoRelease { Ordering::Relaxed } else { Ordering::Release };
        let last = word.fetch_sub(1, order) == WAITED | 1;
        if last && lock.flaw != Flaw::LeavesQuietly {
            let cleared = word.compare_exchange(WAITED, 0, Ordering::Relaxed, Ordering::Relaxed);
            if cleared.is_ok() {
                lock.open();
            }
        }
    }
    fn writing(&self, work: &mut dyn FnMut()) {
        let (lock, word) = (&self.lock, &self.word);
        let others = if lock.flaw == Flaw::IgnoresReaders { LOCKED } else { !WAITED };
        lock.take(word, |seen| seen & others == 0, |seen| seen | LOCKED);
        work();
        let order = match lock.flaw {
            Flaw::NoReleaseOfWriters => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        if word.swap(0, order) & WAITED != 0 {
            lock.open();
        }
    }
}

fn copies(flaw: Flaw) {
    type Its = World<InWord<Copy>>;
    run(Copy::new(flaw), &[&[Its::add], &[Its::load]], 1);
}

#[test]
fn a_faithful_copy_passes() {
    every(|| copies(Flaw::None));
}

found! {
    leaving_without_waking_is_found: LeavesQuietly, DEADLOCK;
    leaving_without_release_is_found: NoRelease, RACE;
    ending_a_write_without_release_is_found: NoReleaseOfWriters, RACE;
    coming_in_without_acquire_is_found: NoAcquire, RACE;
    writing_beside_readers_is_found: IgnoresReaders, RACE;
}
