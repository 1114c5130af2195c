//! The reader-writer lock in a word: the `rwlock` and `global-rwlock` schemes of slots.

use std::sync::Arc;

use designs::locks::{RwLock, SharedWaitQueues};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::{at_once, bounded, every};

/// A lock, the word that it is in, and what it guards.
struct World {
    lock: SharedWaitQueues,
    word: AtomicU64,
    value: UnsafeCell<u64>,
}

// SAFETY: the lock keeps readers and writers apart; loom checks that it does.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn load(&self) {
        self.lock.read(&self.word, 7);
        // SAFETY: loom checks that nobody changes it meanwhile.
        let value = self.value.with(|value| unsafe { *value });
        assert!(value < 5);
        self.lock.end_read(&self.word, 7);
    }

    fn add(&self) {
        self.lock.write(&self.word, 7);
        // SAFETY: loom checks that this is the only access.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.lock.end_write(&self.word, 7);
    }
}

type Act = fn(&World);

/// Each of `threads` does what its list says, the first of them this one; `writes` of it add.
fn run(threads: &[&'static [Act]], writes: u64) {
    let (lock, word) = (SharedWaitQueues::default(), AtomicU64::new(0));
    let world = Arc::new(World { lock, word, value: UnsafeCell::new(0) });
    at_once(&world, threads, |world, acts: &[Act]| acts.iter().for_each(|act| act(world)));
    // Whoever left the lock wrong is found here: it cannot be had alone.
    world.add();
    // SAFETY: loom checks that the last one's addition is ordered before this.
    world.value.with(|value| assert_eq!(unsafe { *value }, writes + 1));
    assert_eq!(world.word.load(Ordering::Relaxed), 0, "the word is left wrong");
}

#[test]
fn a_writer_and_a_reader_exclude_each_other() {
    every(|| run(&[&[World::add, World::load], &[World::load]], 1));
    bounded(3, || run(&[&[World::add, World::add], &[World::load, World::add]], 3));
}

#[test]
fn two_readers_and_a_writer_all_finish() {
    bounded(3, || run(&[&[World::add], &[World::load], &[World::load]], 1));
}

#[test]
fn two_writers_and_a_reader_all_finish() {
    bounded(3, || run(&[&[World::load], &[World::add], &[World::add]], 2));
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
