//! The event, with a buffer that things are put on and taken from.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use loom::thread;
use sync::EventCount;

use crate::{DEADLOCK, bounded, every, futex, refused};

/// A manner of waiting: the crate's, or a copy with a flaw.
trait Manner: Send + Sync + 'static {
    fn await_one(&self, take: impl Fn() -> bool);
    fn notify_one(&self);
    fn notify_all(&self);
}

impl Manner for EventCount {
    fn await_one(&self, take: impl Fn() -> bool) {
        loop {
            let ticket = self.ticket();
            if take() {
                return;
            }
            self.wait(ticket);
        }
    }
    fn notify_one(&self) {
        EventCount::notify_one(self);
    }
    fn notify_all(&self) {
        EventCount::notify_all(self);
    }
}

/// How many things there are.
struct Buffer<M> {
    manner: M,
    things: AtomicUsize,
}

impl<M: Manner> Buffer<M> {
    fn new(manner: M) -> Arc<Buffer<M>> {
        Arc::new(Buffer { manner, things: AtomicUsize::new(0) })
    }

    fn take(&self) {
        let less = |things: usize| things.checked_sub(1);
        let try_take =
            || self.things.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.manner.await_one(try_take);
    }

    fn put_one(&self) {
        self.things.fetch_add(1, Ordering::Relaxed);
        self.manner.notify_one();
    }

    fn put(&self, things: usize) {
        self.things.fetch_add(things, Ordering::Relaxed);
        self.manner.notify_all();
    }
}

/// Threads that each take a thing, beside this one, which puts them there.
fn run<M: Manner>(manner: M, takers: usize, at_once: bool) {
    let buffer = Buffer::new(manner);
    let others: Vec<_> = (0..takers)
        .map(|_| {
            let buffer = buffer.clone();
            thread::spawn(move || buffer.take())
        })
        .collect();
    if at_once {
        buffer.put(takers);
    } else {
        (0..takers).for_each(|_| buffer.put_one());
    }
    others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
    assert_eq!(buffer.things.load(Ordering::Relaxed), 0);
}

#[test]
fn a_ring_is_never_missed() {
    every(|| run(EventCount::default(), 1, false));
    every(|| run(EventCount::default(), 1, true));
}

#[test]
fn everybody_is_told_once_each() {
    bounded(3, || run(EventCount::default(), 2, false));
}

#[test]
fn everybody_is_told_at_once() {
    bounded(3, || run(EventCount::default(), 2, true));
}

/// Whoever takes a thing and puts it back tells the next.
#[test]
fn a_thing_goes_from_hand_to_hand() {
    bounded(2, || {
        let buffer = Buffer::new(EventCount::default());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let buffer = buffer.clone();
                thread::spawn(move || {
                    buffer.take();
                    buffer.put_one();
                })
            })
            .collect();
        buffer.put_one();
        others.into_iter().for_each(|other| other.join().expect("no thread of the model panics"));
        assert_eq!(buffer.things.load(Ordering::Relaxed), 1);
    });
}

/// What is wrong with the copy.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    /// Looks first and takes the ticket then.
    LateTicket,
    /// Nothing between ringing and looking whether anybody sleeps.
    RingerFence,
    /// Nothing between saying that one sleeps and looking at the event.
    SleeperFence,
    /// Rings for one when there is something for all.
    OneForAll,
}

struct Copy {
    flaw: Flaw,
    rings: AtomicU32,
    sleepers: AtomicU32,
}

impl Copy {
    fn new(flaw: Flaw) -> Copy {
        Copy { flaw, rings: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
    }

    fn ring(&self) -> bool {
        self.rings.fetch_add(1, Ordering::Release);
        if self.flaw != Flaw::RingerFence {
            fence(Ordering::SeqCst);
        }
        self.sleepers.load(Ordering::Relaxed) > 0
    }
}

impl Manner for Copy {
    fn await_one(&self, take: impl Fn() -> bool) {
        loop {
            let early = self.rings.load(Ordering::Acquire);
            if take() {
                return;
            }
            let late = self.flaw == Flaw::LateTicket;
            let ticket = if late { self.rings.load(Ordering::Acquire) } else { early };
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            if self.flaw != Flaw::SleeperFence {
                fence(Ordering::SeqCst);
            }
            futex::wait(&self.rings, ticket);
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }
    fn notify_one(&self) {
        if self.ring() {
            futex::wake_one(&self.rings);
        }
    }
    fn notify_all(&self) {
        if self.ring() {
            match self.flaw {
                Flaw::OneForAll => futex::wake_one(&self.rings),
                _ => futex::wake_all(&self.rings),
            }
        }
    }
}

#[test]
fn a_faithful_copy_passes() {
    every(|| run(Copy::new(Flaw::None), 1, false));
    bounded(3, || run(Copy::new(Flaw::None), 2, true));
}

#[test]
fn a_ticket_taken_too_late_is_found() {
    refused(DEADLOCK, || run(Copy::new(Flaw::LateTicket), 1, false));
}

#[test]
fn ringing_without_a_fence_is_found() {
    refused(DEADLOCK, || run(Copy::new(Flaw::RingerFence), 1, false));
}

#[test]
fn sleeping_without_a_fence_is_found() {
    refused(DEADLOCK, || run(Copy::new(Flaw::SleeperFence), 1, false));
}

#[test]
fn waking_one_when_there_is_something_for_all_is_found() {
    refused(DEADLOCK, || run(Copy::new(Flaw::OneForAll), 2, true));
}
