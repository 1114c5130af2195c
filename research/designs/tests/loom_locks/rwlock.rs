//! The lock with two modes.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use designs::locks::RwLock;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use sync::Mutex;

use crate::readers::{Manner, World, run};
use crate::{DEADLOCK, RACE, bounded, every, found, futex};

impl Manner for RwLock<()> {
    fn reading(&self, work: &mut dyn FnMut()) {
        let _held = self.read();
        work();
    }
    fn writing(&self, work: &mut dyn FnMut()) {
        let _held = self.write();
        work();
    }
}

type Ours = World<RwLock<()>>;

#[test]
fn a_writer_and_a_reader_exclude_each_other() {
    bounded(4, || _ = run(RwLock::new(()), &[&[Ours::add], &[Ours::load]], 1));
    bounded(3, || {
        _ = run(RwLock::new(()), &[&[Ours::add, Ours::load], &[Ours::load, Ours::add]], 2)
    });
}

#[test]
fn two_readers_and_a_writer_all_finish() {
    bounded(2, || _ = run(RwLock::new(()), &[&[Ours::add], &[Ours::load], &[Ours::load]], 1));
}

#[test]
fn two_writers_and_a_reader_all_finish() {
    bounded(2, || _ = run(RwLock::new(()), &[&[Ours::load], &[Ours::add], &[Ours::add]], 2));
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
    /// The last reader to leave does not wake the writer at the front.
    LeavesQuietly,
    /// A writer who leaves wakes nobody.
    EndsQuietly,
    /// Readers who leave release nothing.
    NoRelease,
    /// Writers who leave release nothing.
    NoReleaseOfWriters,
    /// Who comes in acquires nothing.
    NoAcquire,
    /// A reader at the front comes in beside a writer.
    IgnoresWriter,
    /// Who came in vain stays counted.
    StaysCounted,
}

const WRITER: u32 = 1;
const QUEUED: u32 = 2;
const ASLEEP: u32 = 4;
const READER: u32 = 8;

struct Copy {
    flaw: Flaw,
    state: AtomicU32,
    queue: Mutex<()>,
}

impl Copy {
    fn new(flaw: Flaw) -> Copy {
        Copy { flaw, state: AtomicU32::new(0), queue: Mutex::new(()) }
    }

    fn acquire(&self) -> Ordering {
        if self.flaw == Flaw::NoAcquire { Ordering::Relaxed } else { Ordering::Acquire }
    }

    fn own(&self, seen: u32) -> bool {
        self.state.compare_exchange(seen, WRITER, self.acquire(), Ordering::Relaxed).is_ok()
    }

    fn sleep(&self, seen: u32) {
        let (asleep, relaxed) = (seen | ASLEEP, Ordering::Relaxed);
        if seen == asleep || self.state.compare_exchange(seen, asleep, relaxed, relaxed).is_ok() {
            futex::wait(&self.state, asleep);
        }
    }

    fn end_read(&self) {
        let release = match self.flaw {
            Flaw::NoRelease => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        let left = self.state.fetch_sub(READER, release) - READER;
        if left == QUEUED | ASLEEP && self.flaw != Flaw::LeavesQuietly {
            futex::wake_one(&self.state);
        }
    }
}

impl Manner for Copy {
    fn reading(&self, work: &mut dyn FnMut()) {
        if self.state.fetch_add(READER, self.acquire()) & (WRITER | QUEUED) != 0 {
            if self.flaw != Flaw::StaysCounted {
                self.end_read();
            }
            // Not let go of when loom stops a thread that sleeps here.
            let front = ManuallyDrop::new(self.queue.lock());
            self.state.fetch_add(READER, Ordering::Relaxed);
            loop {
                let seen = self.state.load(self.acquire());
                if seen & WRITER == 0 || self.flaw == Flaw::IgnoresWriter {
                    self.state.fetch_and(!ASLEEP, Ordering::Relaxed);
                    break;
                }
                self.sleep(seen);
            }
            drop(ManuallyDrop::into_inner(front));
        }
        work();
        self.end_read();
    }

    fn writing(&self, work: &mut dyn FnMut()) {
        if !self.own(0) {
            // Not let go of when loom stops a thread that sleeps here.
            let front = ManuallyDrop::new(self.queue.lock());
            self.state.fetch_or(QUEUED, Ordering::Relaxed);
            loop {
                let seen = self.state.load(Ordering::Relaxed);
                if seen & !(QUEUED | ASLEEP) != 0 {
                    self.sleep(seen);
                } else if self.own(seen) {
                    break;
                }
            }
            drop(ManuallyDrop::into_inner(front));
        }
        work();
        let release = match self.flaw {
            Flaw::NoReleaseOfWriters => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        let woken = self.state.fetch_sub(WRITER, release) & ASLEEP != 0;
        if woken && self.flaw != Flaw::EndsQuietly {
            futex::wake_one(&self.state);
        }
    }
}

fn copies(flaw: Flaw) {
    type Its = World<Copy>;
    run(Copy::new(flaw), &[&[Its::add], &[Its::load]], 1);
}

#[test]
fn a_faithful_copy_passes() {
    bounded(3, || copies(Flaw::None));
}

found! {
    leaving_without_waking_is_found: LeavesQuietly, DEADLOCK;
    ending_a_write_without_waking_is_found: EndsQuietly, DEADLOCK;
    leaving_without_release_is_found: NoRelease, RACE;
    ending_a_write_without_release_is_found: NoReleaseOfWriters, RACE;
    coming_in_without_acquire_is_found: NoAcquire, RACE;
    reading_beside_a_writer_is_found: IgnoresWriter, RACE;
    a_reader_who_stays_counted_is_found: StaysCounted, DEADLOCK;
}
